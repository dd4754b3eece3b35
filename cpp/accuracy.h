// Counting top-1 and top-5, exactly and to the last image.
#pragma once

#include <cstdint>

namespace quaver {

struct Hits {
  std::int64_t top1 = 0;
  std::int64_t top5 = 0;
  std::int64_t with_nan = 0;  // images with a NaN among their outputs

  Hits& operator+=(const Hits& other);
};

// The hits of one image: 1 or 0 each. As in `quaver test`, outputs stand in stable descending order: among equals the lower
// class is first. NaN comes last, and a label whose output is NaN is never a hit.
Hits hits_of(std::int64_t label, const float* logits, std::int64_t classes);

}  // namespace quaver

#include "accuracy.h"

#include <algorithm>
#include <cmath>

namespace quaver {

Hits& Hits::operator+=(const Hits& other) {
  top1 += other.top1;
  top5 += other.top5;
  with_nan += other.with_nan;
  return *this;
}

Hits hits_of(std::int64_t label, const float* logits, std::int64_t classes) {
  const float own = logits[label];
  std::int64_t ahead = 0;
  for (std::int64_t other = 0; other < classes; ++other) {
    ahead += logits[other] > own || (logits[other] == own && other < label);
  }
  const bool nan = std::any_of(logits, logits + classes, [](float logit) { return std::isnan(logit); });
  const bool can_hit = !std::isnan(own);
  return {can_hit && ahead < 1, can_hit && ahead < 5, nan};
}

}  // namespace quaver

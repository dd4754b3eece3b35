// Running a model over the data, and what comes of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "accuracy.h"
#include "binary_data.h"
#include "flags.h"
#include "model.h"

namespace quaver {

// Which part of the data is run, and in what portions.
struct Plan {
  std::int64_t batch_size;
  std::int64_t iterations;
  std::int64_t samples;
  std::int64_t image_with_largest_label;  // 0 where labels are not read

  std::int64_t first(std::int64_t iteration) const { return iteration * batch_size; }
  std::int64_t count(std::int64_t iteration) const;
};

// All of the data, or the first `iterations` batches of it; labels outside the file's classes are refused.
Plan make_plan(const BinaryData& data, const Flags& flags);

struct Batch {
  std::int32_t pass;  // 0 is the first time through the data, and the one that counts hits
  std::int64_t iteration;
  std::int64_t samples;
  double ms;
  Hits hits;
};

struct Result {
  double ms = 0;  // of all batches of all passes
  Hits hits;      // of the first pass
  std::map<std::string, LayerTime> layers;
};

// Refuses, before anything is run, a model that cannot take what the plan will give it.
void must_fit(const Model& model, const BinaryData& data, const Plan& plan, const Flags& flags);

// Runs the plan, telling `on_batch` of every timed batch.
Result run(Model& model, const BinaryData& data, const Plan& plan, const Flags& flags,
           const std::function<void(const Batch&)>& on_batch);

}  // namespace quaver

#include "tester.h"

#include <algorithm>
#include <chrono>

#include "refusal.h"

namespace quaver {
namespace {

void must_have_output_for(std::int64_t image, const BinaryData& data, std::int64_t classes, const Model& model) {
  if (data.label(image) < classes) return;
  throw Refusal(data.path() + ": the label of image " + std::to_string(image) + " is " + std::to_string(data.label(image)) +
                ", and " + model.file().string() + " has outputs 0.." + std::to_string(classes - 1) +
                ". Test the model on data with its own classes.");
}

Hits count_hits(const Logits& logits, const BinaryData& data, std::int64_t first, std::int64_t count) {
  Hits hits;
  for (std::int64_t i = 0; i < count; ++i) {
    hits += hits_of(data.label(first + i), logits.values + i * logits.classes, logits.classes);
  }
  return hits;
}

// Runs a batch of each size, the short last one too: the engine compiles for a size when it first meets it.
void compile_for_every_size(Model& model, const BinaryData& data, const Plan& plan) {
  model.prepare_for(plan.count(0), data.shape());
  for (const std::int64_t iteration : {std::int64_t{0}, plan.iterations - 1}) {
    model.infer(data, plan.first(iteration), plan.count(iteration));
  }
}

}  // namespace

std::int64_t Plan::count(std::int64_t iteration) const { return std::min(batch_size, samples - first(iteration)); }

Plan make_plan(const BinaryData& data, const Flags& flags) {
  const std::int64_t batch_size = flags.batch_size;
  const std::int64_t available = (data.count() - 1) / batch_size + 1;
  const std::int64_t iterations = flags.iterations == 0 ? available : std::min<std::int64_t>(flags.iterations, available);
  return {batch_size, iterations, std::min(data.count(), iterations * batch_size),
          flags.speed_only ? 0 : data.image_with_largest_label()};
}

void must_fit(const Model& model, const BinaryData& data, const Plan& plan, const Flags& flags) {
  model.must_take(data.shape());
  if (!flags.speed_only) model.must_have_one_output();
  model.must_take_batch(plan.batch_size, "--batch_size is " + std::to_string(plan.batch_size),
                        "Use the model's own, or export the model with a free batch.");
  const std::int64_t last = plan.count(plan.iterations - 1);
  const std::int64_t whole = plan.samples / plan.batch_size;
  const std::string fewer =
      whole > 0 ? "Use --iterations=" + std::to_string(whole) + " to leave them out" : "Use more images";
  model.must_take_batch(last, "the last batch has " + std::to_string(last) + " images, which are not padded",
                        fewer + ", or export the model with a free batch.");
  model.must_carry_batch(plan.count(0), data.shape());
  model.must_carry_batch(last, data.shape());
}

Result run(Model& model, const BinaryData& data, const Plan& plan, const Flags& flags,
           const std::function<void(const Batch&)>& on_batch) {
  compile_for_every_size(model, data, plan);
  for (std::int64_t i = 0; i < flags.warmup_size; ++i) {
    const std::int64_t iteration = i % plan.iterations;
    model.infer(data, plan.first(iteration), plan.count(iteration));
  }
  Result result;
  for (std::int32_t pass = 0; pass < flags.repeat; ++pass) {
    for (std::int64_t iteration = 0; iteration < plan.iterations; ++iteration) {
      Batch batch{pass, iteration, plan.count(iteration), 0, {}};
      batch.ms = std::chrono::duration<double, std::milli>(model.infer(data, plan.first(iteration), batch.samples)).count();
      if (!flags.speed_only && pass == 0) {
        const Logits logits = model.logits();
        must_have_output_for(plan.image_with_largest_label, data, logits.classes, model);
        batch.hits = count_hits(logits, data, plan.first(iteration), batch.samples);
      }
      if (flags.profile) model.add_layer_times(result.layers);
      result.ms += batch.ms;
      result.hits += batch.hits;
      on_batch(batch);
    }
  }
  return result;
}

}  // namespace quaver

// sample_tester: run a model over a binary data file on OpenVINO, and print speed and accuracy.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>

#include "binary_data.h"
#include "flags.h"
#include "model.h"
#include "processor.h"
#include "refusal.h"
#include "report.h"
#include "tester.h"

namespace quaver {
namespace {

// Asked before the run: figures of an hour should not be lost to a mistyped folder.
void must_be_writable(const std::string& path) {
  const bool exists = std::filesystem::exists(path);
  const auto folder = std::filesystem::absolute(path).parent_path();
  if (std::filesystem::is_directory(path) || access(exists ? path.c_str() : folder.c_str(), W_OK) != 0) {
    throw Refusal("--json=" + path + ": no file can be written there. Name a file in a folder that exists.");
  }
}

void write_json(const Report& report) {
  if (report.flags.json.empty()) {
    std::cout << to_json(report) << "\n";
    return;
  }
  std::ofstream file(report.flags.json);
  file << to_json(report) << std::endl;
  if (!file) throw Refusal("--json=" + report.flags.json + ": the figures could not be written. Is the disk full?");
}

void say_what_differs(const Flags& flags, const Plan& plan, const Model& model) {
  if (flags.iterations > plan.iterations) {
    std::cerr << "note: --iterations=" << flags.iterations << ": the data are " << plan.iterations
              << " batches; all are run\n";
  }
  if (flags.num_threads != model.threads()) {
    std::cerr << "note: --num_threads=" << flags.num_threads << ": the engine uses " << model.threads() << "\n";
  }
}

void test(const Flags& flags) {
  if (!flags.json.empty()) must_be_writable(flags.json);
  const BinaryData data(flags.infer_data);
  const Plan plan = make_plan(data, flags);
  keep_off_doubtful_amx(std::cerr);
  Model model(find_model(flags.infer_model), flags.num_threads, flags.profile);
  must_fit(model, data, plan, flags);
  say_what_differs(flags, plan, model);

  const auto on_batch = [&](const Batch& batch) { print_batch(std::cout, batch, plan, flags); };
  const Result result = run(model, data, plan, flags, on_batch);

  const Report report{flags, plan, model, result};
  print_totals(std::cout, report);
  if (flags.profile) print_layers(std::cout, report);
  if (result.hits.with_nan > 0) {
    std::cerr << "warning: " << result.hits.with_nan << " images have NaN among their outputs; a label with NaN is no hit\n";
  }
  write_json(report);
  if (!std::cout.flush()) throw Refusal("standard output: the figures could not be written. Is the disk full?");
}

}  // namespace
}  // namespace quaver

int main(int argc, char** argv) {
  try {
    const quaver::Flags flags = quaver::parse_flags({argv + 1, argv + argc});
    if (flags.help) {
      std::cout << quaver::usage();
    } else {
      quaver::test(flags);
    }
    return 0;
  } catch (const std::bad_alloc&) {
    std::cerr << "sample_tester: the memory is not enough for a batch. Use a smaller --batch_size.\n";
  } catch (const std::exception& error) {
    std::cerr << "sample_tester: " << error.what() << "\n";
  }
  return 2;
}

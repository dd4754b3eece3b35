#include "model.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

#include "refusal.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;

bool is_model(const fs::path& file) { return file.extension() == ".xml" || file.extension() == ".onnx"; }

// OpenVINO's message in one line, without the places in its own source.
std::string plain_words(const std::exception& error) {
  std::istringstream lines(error.what());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("Exception from ", 0) == 0 || line.rfind("Check '", 0) == 0) continue;
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty()) text += (text.empty() ? "" : " ") + line;
  }
  text.erase(text.find_last_not_of(" .") + 1);
  return text.empty() ? "no reason given" : text;
}

// Does what OpenVINO is asked for; its exceptions become ours.
template <typename Work>
auto with_openvino(const fs::path& file, const std::string& fact, const std::string& way_out, Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    throw Refusal(file.string() + ": " + fact + ": " + plain_words(error) + ". " + way_out);
  }
}

// What to give in place of a folder without a model; of one with a program, which PyTorch runs, what lies beside it.
std::string way_out_of(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / "program.json", error)) return "Export a model into it.";
  const fs::path tree = folder.has_filename() ? folder.parent_path() : folder.parent_path().parent_path();
  return "It is a program for PyTorch, which `quaver test` runs. Give " + (tree / "int8").string() +
         " for the int8 model, or " + (tree / "fp32").string() + " for the float one.";
}

template <typename Shape>
std::string shown(const Shape& shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

}  // namespace

fs::path find_model(const fs::path& artefact) {
  std::error_code error;
  const fs::file_status status = fs::status(artefact, error);
  if (!fs::exists(status)) {
    throw Refusal(artefact.string() + ": " + (error ? error.message() : "there is nothing") + ". Check --infer_model.");
  }
  if (!fs::is_directory(status)) {
    if (is_model(artefact)) return artefact;
    throw Refusal(artefact.string() + ": the tester runs .xml and .onnx files. Export the model to openvino or onnx.");
  }
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(artefact, error), end; !error && entry != end; entry.increment(error)) {
    if (is_model(entry->path())) found.push_back(entry->path());
  }
  if (error) throw Refusal(artefact.string() + ": cannot be listed: " + error.message() + ". Check --infer_model.");
  if (found.empty()) throw Refusal(artefact.string() + ": the folder holds no .xml or .onnx file. " + way_out_of(artefact));
  std::sort(found.begin(), found.end());
  if (found.size() == 1) return found[0];
  // One program for two engines, as `quaver convert` leaves it in int8/: the one that is OpenVINO's own.
  if (found.size() == 2 && found[0].stem() == found[1].stem()) return found[1];
  throw Refusal(artefact.string() + ": the folder holds " + std::to_string(found.size()) + " models (" +
                found[0].filename().string() + ", " + found[1].filename().string() + (found.size() > 2 ? " …" : "") +
                "). Name the file that is meant.");
}

Model::Model(const fs::path& file, std::int32_t threads, bool profile) : file_(file) {
  with_openvino(file, "OpenVINO cannot read it", "Is it whole, and is a .xml's .bin beside it?", [&] {
    model_ = core_.read_model(file.string());
    // float layers stay float32 where the CPU has bf16 (AMX), and linear layers with int8 weights and float inputs do not
    // have their inputs rounded on the way (OpenVINO's default for those): what the file says is what runs
    options_ = {ov::hint::inference_precision(ov::element::f32), ov::hint::dynamic_quantization_group_size(0),
                ov::hint::performance_mode(ov::hint::PerformanceMode::LATENCY), ov::num_streams(1),
                ov::inference_num_threads(threads), ov::enable_profiling(profile)};
    compiled_ = core_.compile_model(model_, "CPU", options_);
    any_size_ = compiled_.create_infer_request();
    threads_ = compiled_.get_property(ov::inference_num_threads);
  });
}

void Model::prepare_for(std::int64_t size, const ImageShape& shape) {
  with_openvino(file_, "OpenVINO cannot compile it", "Export it with a free batch, or try another --batch_size.", [&] {
    const auto fixed = model_->clone();
    fixed->get_parameters().at(0)->set_partial_shape({size, shape.channels, shape.height, shape.width});
    fixed->validate_nodes_and_infer_types();
    ov::AnyMap options = options_;
    for (const auto& op : fixed->get_ops()) {
      // for fixed shapes the engine would fuse quantizers into kernels that round otherwise
      if (op->get_type_name() == std::string("FakeQuantize")) options["SNIPPETS_MODE"] = "DISABLE";
    }
    one_size_ = core_.compile_model(fixed, "CPU", options).create_infer_request();
    size_ = size;
  });
}

void Model::must_take(const ImageShape& shape) const {
  if (compiled_.inputs().size() != 1) {
    throw Refusal(file_.string() + ": it has " + std::to_string(compiled_.inputs().size()) +
                  " inputs; the tester has images alone to give. Export a model with one input.");
  }
  const auto input = compiled_.input();
  const ov::PartialShape images{-1, shape.channels, shape.height, shape.width};
  if (!input.get_partial_shape().compatible(images)) {
    throw Refusal(file_.string() + ": it takes inputs of shape " + shown(input.get_partial_shape()) +
                  ", and the images are " + to_string(shape) + ". Convert the data to the model's size.");
  }
  if (input.get_element_type() != ov::element::f32) {
    throw Refusal(file_.string() + ": it takes " + shown(input.get_element_type()) +
                  " inputs, and the images are float32. Export a model with a float32 input.");
  }
}

void Model::must_take_batch(std::int64_t size, const std::string& why, const std::string& way_out) const {
  const ov::PartialShape shape = compiled_.input().get_partial_shape();
  if (shape.rank().is_dynamic() || shape[0].compatible(size)) return;
  throw Refusal(file_.string() + ": its batch is fixed at " + shown(shape[0]) + ", and " + why + ". " + way_out);
}

void Model::must_carry_batch(std::int64_t size, const ImageShape& shape) const {
  // A Reshape may fix the batch. The engine does not look, and would read past the images (seen in 2026.4). Working out a
  // copy's shapes does look; ov::Model::reshape would mend the Reshape instead.
  const std::string fact = "it cannot carry a batch of " + std::to_string(size) + " images";
  with_openvino(file_, fact, "Use another --batch_size, or export the model with a free batch.", [&] {
    const auto copy = model_->clone();
    copy->get_parameters().at(0)->set_partial_shape({size, shape.channels, shape.height, shape.width});
    copy->validate_nodes_and_infer_types();
  });
}

void Model::must_have_one_output() const {
  if (compiled_.outputs().size() == 1) return;
  throw Refusal(file_.string() + ": it has " + std::to_string(compiled_.outputs().size()) +
                " outputs, and accuracy is counted on one. Use --speed_only to time it only.");
}

std::chrono::nanoseconds Model::infer(const BinaryData& data, std::int64_t first, std::int64_t count) {
  const auto size = [](std::int64_t side) { return static_cast<std::size_t>(side); };
  const ImageShape& shape = data.shape();
  const ov::Shape wanted{size(count), size(shape.channels), size(shape.height), size(shape.width)};
  return with_openvino(file_, "OpenVINO cannot run it", "Export it with a free batch, or try another --batch_size.", [&] {
    request_ = count == size_ ? one_size_ : any_size_;
    if (!batch_ || batch_.get_shape() != wanted) {
      batch_ = ov::Tensor(ov::element::f32, wanted);
      request_.set_input_tensor(batch_);
    }
    std::memcpy(batch_.data<float>(), data.images(first), batch_.get_byte_size());
    const auto start = std::chrono::steady_clock::now();
    request_.infer();
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start);
  });
}

Logits Model::logits() {
  const ov::Tensor output = request_.get_output_tensor(0);
  const ov::Shape shape = output.get_shape();
  const bool rows = shape.size() >= 2 && shape[0] == batch_.get_shape()[0] && shape[1] > 0;
  if (!rows || output.get_size() != shape[0] * shape[1] || output.get_element_type() != ov::element::f32) {
    throw Refusal(file_.string() + ": its output is " + shown(output.get_element_type()) + " " + shown(shape) +
                  "; accuracy needs float32 of one row of classes per image. "
                  "Use --speed_only to time it only.");
  }
  return {output.data<const float>(), static_cast<std::int64_t>(shape[1])};
}

void Model::add_layer_times(std::map<std::string, LayerTime>& layers) const {
  for (const ov::ProfilingInfo& layer : request_.get_profiling_info()) {
    if (layer.status != ov::ProfilingInfo::Status::EXECUTED) continue;
    LayerTime& entry = layers[layer.node_name];
    entry.type = layer.node_type;
    entry.exec_type = layer.exec_type;
    entry.time += layer.real_time;
  }
}

}  // namespace quaver

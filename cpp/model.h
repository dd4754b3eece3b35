// A model on OpenVINO's CPU engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <openvino/openvino.hpp>
#include <string>

#include "binary_data.h"

namespace quaver {

// model.xml or model.onnx itself, or the one such file of a folder.
std::filesystem::path find_model(const std::filesystem::path& artefact);

// The outputs of a batch: one row of `classes` values per image.
struct Logits {
  const float* values;
  std::int64_t classes;
};

struct LayerTime {
  std::string type;
  std::string exec_type;
  std::chrono::microseconds time{0};
};

class Model {
 public:
  Model(const std::filesystem::path& file, std::int32_t threads, bool profile);

  // Refuses a model that does not take images of this shape, one float32 input in all.
  void must_take(const ImageShape& shape) const;
  // Refuses a model whose input has room for another number of images only; `why` says where the number comes from.
  void must_take_batch(std::int64_t size, const std::string& why, const std::string& way_out) const;
  // Refuses a model whose input takes any number of images, but which has another number fixed further in.
  void must_carry_batch(std::int64_t size, const ImageShape& shape) const;
  // Refuses a model that has more than one output, so that nobody can say which one the labels mean.
  void must_have_one_output() const;

  // Compiles the model for batches of this size alone, which run faster then. Batches of other sizes still run.
  void prepare_for(std::int64_t size, const ImageShape& shape);

  // Runs a batch and gives the time of the inference alone, without reading the images from disk.
  std::chrono::nanoseconds infer(const BinaryData& data, std::int64_t first, std::int64_t count);
  // What the last batch gave; outputs that are no row of classes per image are refused.
  Logits logits();
  // Adds what each layer of the last batch took.
  void add_layer_times(std::map<std::string, LayerTime>& layers) const;

  const std::filesystem::path& file() const { return file_; }
  // What the engine uses, which is at most the number of cores.
  std::int32_t threads() const { return threads_; }

 private:
  std::filesystem::path file_;
  ov::Core core_;
  ov::AnyMap options_;
  std::shared_ptr<ov::Model> model_;
  ov::CompiledModel compiled_;
  ov::InferRequest any_size_, one_size_;
  std::int64_t size_ = 0;    // of the batches that one_size_ takes
  ov::InferRequest request_;  // of the last batch
  ov::Tensor batch_;
  std::int32_t threads_ = 0;
};

}  // namespace quaver

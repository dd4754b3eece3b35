// The binary data file: images and labels, little-endian, memory-mapped.
//
//   reference layout   int64 N | N*3*224*224 float32 | N int64 labels in 0..999
//   with a header      "QUAVERB1" | int64 N, C, H, W, classes | N*C*H*W float32 | N int64 labels in 0..classes-1
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace quaver {

struct ImageShape {
  std::int64_t channels = 3;
  std::int64_t height = 224;
  std::int64_t width = 224;
};

std::string to_string(const ImageShape& shape);

// A whole file as read-only memory. Pages come from disk as they are touched, so it may be larger than memory.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class BinaryData {
 public:
  // Opens the file; one whose length does not fit its header exactly is refused.
  explicit BinaryData(const std::string& path);

  const std::string& path() const { return path_; }
  std::int64_t count() const { return count_; }
  const ImageShape& shape() const { return shape_; }
  std::size_t floats_per_image() const { return floats_per_image_; }

  const float* images(std::int64_t first) const;
  std::int64_t label(std::int64_t image) const;

  // The first image with the largest label; a label outside the file's classes is refused.
  std::int64_t image_with_largest_label() const;

 private:
  void read_header();
  void measure(std::size_t header);

  std::string path_;
  MappedFile file_;
  std::int64_t count_ = 0;
  ImageShape shape_;
  std::int64_t classes_ = 1000;
  std::size_t floats_per_image_ = 0;
  const std::byte* images_ = nullptr;
  const std::byte* labels_ = nullptr;
};

}  // namespace quaver

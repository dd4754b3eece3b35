#include "binary_data.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "refusal.h"

namespace quaver {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian and read as it lies");
static_assert(sizeof(std::size_t) == 8, "files may be larger than 4 GB");

constexpr char kMagic[] = "QUAVERB1";
constexpr std::size_t kWord = sizeof(std::int64_t);
constexpr std::size_t kHeader = 6 * kWord;  // the magic and five numbers

// Labels need not be aligned to eight bytes, so they are copied out.
std::int64_t int64_at(const std::byte* place) {
  std::int64_t value = 0;
  std::memcpy(&value, place, sizeof value);
  return value;
}

const std::string kConvertAgain = " Write the file again with `quaver convert-data`.";

}  // namespace

std::string to_string(const ImageShape& shape) {
  return std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" + std::to_string(shape.width);
}

MappedFile::MappedFile(const std::string& path) {
  const auto refuse = [&path] {
    throw Refusal(path + ": cannot be read: " + std::strerror(errno) + ". Check --infer_data.");
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer must not hang us
  if (file < 0) refuse();
  struct stat facts{};
  const bool known = fstat(file, &facts) == 0;
  if (!known || !S_ISREG(facts.st_mode) || facts.st_size == 0) {
    close(file);
    if (!known) refuse();
    throw Refusal(path + (S_ISREG(facts.st_mode) ? ": the file is empty." + kConvertAgain
                                                 : ": this is not a file. --infer_data takes a binary data file."));
  }
  size_ = static_cast<std::size_t>(facts.st_size);
  void* memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  close(file);  // the mapping stays
  errno = error;
  if (memory == MAP_FAILED) refuse();
  madvise(memory, size_, MADV_SEQUENTIAL);  // only a hint: read ahead, and let go of what was read
  data_ = static_cast<const std::byte*>(memory);
}

MappedFile::~MappedFile() { munmap(const_cast<std::byte*>(data_), size_); }

BinaryData::BinaryData(const std::string& path) : path_(path), file_(path) { read_header(); }

void BinaryData::read_header() {
  const std::byte* start = file_.data();
  const bool has_header = file_.size() >= kWord && std::memcmp(start, kMagic, kWord) == 0;
  if (file_.size() < (has_header ? kHeader : kWord)) {
    throw Refusal(path_ + ": the file ends within its header, after " + std::to_string(file_.size()) + " bytes." +
                  kConvertAgain);
  }
  if (!has_header) {
    count_ = int64_at(start);
    return measure(kWord);
  }
  count_ = int64_at(start + kWord);
  shape_ = {int64_at(start + 2 * kWord), int64_at(start + 3 * kWord), int64_at(start + 4 * kWord)};
  classes_ = int64_at(start + 5 * kWord);
  if (classes_ < 1) {
    throw Refusal(path_ + ": its header says " + std::to_string(classes_) + " classes; there must be at least 1." +
                  kConvertAgain);
  }
  measure(kHeader);
}

// Finds images and labels, and refuses a length that is not exactly theirs. Sizes in the header are not to be trusted, so
// each is compared with the file before it is multiplied.
void BinaryData::measure(std::size_t header) {
  const std::string where = header == kWord ? ": without a QUAVERB1 header, its first number says " : ": its header says ";
  const std::string says = path_ + where + std::to_string(count_) + " images of " + to_string(shape_);
  if (count_ < 1) throw Refusal(says + "; there must be at least 1." + kConvertAgain);
  const std::size_t rest = file_.size() - header;
  std::size_t floats = 1;
  for (const std::int64_t side : {shape_.channels, shape_.height, shape_.width}) {
    if (side < 1) throw Refusal(says + "; every side must be at least 1." + kConvertAgain);
    if (static_cast<std::size_t>(side) > rest / floats) {
      throw Refusal(says + "; one alone would be larger than the file, which has " + std::to_string(file_.size()) +
                    " bytes." + kConvertAgain);
    }
    floats *= static_cast<std::size_t>(side);
  }
  const std::size_t with_label = floats * sizeof(float) + kWord;  // at most 4 * rest + 8, and what was mapped is below 2^57
  if (rest % with_label != 0 || rest / with_label != static_cast<std::size_t>(count_)) {
    throw Refusal(says + ", but after the header the file has " + std::to_string(rest) + " bytes, which is " +
                  std::to_string(rest / with_label) + " images with their labels and " + std::to_string(rest % with_label) +
                  " bytes over." + kConvertAgain);
  }
  floats_per_image_ = floats;
  images_ = file_.data() + header;
  labels_ = images_ + static_cast<std::size_t>(count_) * floats * sizeof(float);
}

const float* BinaryData::images(std::int64_t first) const {
  // both headers are a multiple of four bytes long, so floats lie aligned
  return reinterpret_cast<const float*>(images_) + static_cast<std::size_t>(first) * floats_per_image_;
}

std::int64_t BinaryData::label(std::int64_t image) const {
  return int64_at(labels_ + static_cast<std::size_t>(image) * kWord);
}

std::int64_t BinaryData::image_with_largest_label() const {
  std::int64_t largest = 0;
  for (std::int64_t image = 0; image < count_; ++image) {
    const std::int64_t found = label(image);
    if (found < 0 || found >= classes_) {
      throw Refusal(path_ + ": the label of image " + std::to_string(image) + " is " + std::to_string(found) + "; with " +
                    std::to_string(classes_) + " classes it must lie in 0.." + std::to_string(classes_ - 1) + "." +
                    kConvertAgain);
    }
    if (found > label(largest)) largest = image;
  }
  return largest;
}

}  // namespace quaver

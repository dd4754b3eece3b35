// The command line, in the manner of gflags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quaver {

struct Flags {
  std::string infer_model;
  std::string infer_data;
  std::string json;
  std::int32_t repeat = 1;
  std::int32_t warmup_size = 0;
  std::int32_t batch_size = 50;
  std::int32_t iterations = 0;
  std::int32_t num_threads = 1;
  bool with_accuracy_layer = true;  // changes nothing: no model here needs labels to run
  bool speed_only = false;
  bool profile = false;
  bool help = false;
};

// What the words after the program's name ask for. `--flag=value`, `--flag value`, and for booleans `--flag` and `--noflag`;
// one dash does as well as two, - as well as _ within a name, and the last of several wins.
Flags parse_flags(const std::vector<std::string>& words);

// Every flag with its default and its meaning.
std::string usage();

}  // namespace quaver

#include "flags.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>
#include <variant>

#include "refusal.h"

namespace quaver {
namespace {

using Text = std::string Flags::*;
using Number = std::int32_t Flags::*;
using Switch = bool Flags::*;

struct Flag {
  std::string name;
  std::variant<Text, Number, Switch> place;
  std::int32_t minimum;  // of a number
  std::string meaning;
};

const std::vector<Flag>& all_flags() {
  static const std::vector<Flag> flags = {
      {"infer_model", &Flags::infer_model, 0, "model.xml, model.onnx, or a folder that holds one model"},
      {"infer_data", &Flags::infer_data, 0, "the binary file that `quaver convert-data` writes"},
      {"repeat", &Flags::repeat, 1, "times to run the data; timing is over all, accuracy from the first"},
      {"warmup_size", &Flags::warmup_size, 0, "batches to run before timing starts"},
      {"batch_size", &Flags::batch_size, 1, "images per batch; the last batch may be smaller"},
      {"iterations", &Flags::iterations, 0, "batches to run; 0 means all of the data"},
      {"num_threads", &Flags::num_threads, 1, "threads of the engine"},
      {"with_accuracy_layer", &Flags::with_accuracy_layer, 0,
       "whether the model holds a layer for labels; accuracy comes from the file's labels either way"},
      {"speed_only", &Flags::speed_only, 0, "measure speed alone: labels are not read, outputs may be anything"},
      {"profile", &Flags::profile, 0, "print the time of each layer"},
      {"json", &Flags::json, 0, "file for the figures; without it they are the last line printed"},
      {"help", &Flags::help, 0, "print this"},
  };
  return flags;
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

[[noreturn]] void refuse_unknown(const std::string& word, const std::string& name) {
  const auto& flags = all_flags();
  const auto nearest = std::min_element(flags.begin(), flags.end(), [&](const Flag& a, const Flag& b) {
    return edit_distance(name, a.name) < edit_distance(name, b.name);
  });
  const bool close = edit_distance(name, nearest->name) <= nearest->name.size() / 3;
  throw Refusal(word + ": there is no such flag." + (close ? " Did you mean --" + nearest->name + "?" : "") +
                " --help lists them all.");
}

const Flag* find_flag(const std::string& name) {
  const auto& flags = all_flags();
  const auto found = std::find_if(flags.begin(), flags.end(), [&](const Flag& flag) { return flag.name == name; });
  return found == flags.end() ? nullptr : &*found;
}

std::int32_t to_number(const Flag& flag, const std::string& text) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < flag.minimum) {
    throw Refusal("--" + flag.name + "=" + text + ": this takes a whole number from " + std::to_string(flag.minimum) +
                  " to " + std::to_string(std::numeric_limits<std::int32_t>::max()) + ".");
  }
  return number;
}

std::optional<bool> to_truth(const std::string& text) {
  for (const char* yes : {"true", "t", "yes", "y", "1"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"false", "f", "no", "n", "0"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

// One word of the command line: `--name` or `--name=value`, with one dash or two.
struct Word {
  std::string name;
  std::optional<std::string> value;
};

Word split(const std::string& word) {
  const std::size_t start = word.rfind("--", 0) == 0 ? 2 : 1;
  if (word.empty() || word[0] != '-' || word.size() == start) {
    throw Refusal("'" + word + "': this is not a flag. Flags are written --name=value; --help lists them all.");
  }
  const std::size_t equals = std::min(word.find('='), word.size());
  std::string name = word.substr(start, equals - start);
  std::replace(name.begin(), name.end(), '-', '_');
  if (equals == word.size()) return {name, std::nullopt};
  return {name, word.substr(equals + 1)};
}

// Reads the words one after the other.
class Parser {
 public:
  explicit Parser(const std::vector<std::string>& words) : words_(words) {}

  Flags parse() {
    while (next_ < words_.size()) take(words_[next_++]);
    return flags_;
  }

 private:
  void take(const std::string& text) {
    const Word word = split(text);
    if (const Flag* flag = find_flag(word.name)) {
      if (const auto* place = std::get_if<Switch>(&flag->place)) {
        flags_.*(*place) = truth(*flag, word);
      } else if (const auto* number = std::get_if<Number>(&flag->place)) {
        flags_.** number = to_number(*flag, value(*flag, word));
      } else {
        flags_.*std::get<Text>(flag->place) = value(*flag, word);
      }
      return;
    }
    const Flag* negated = word.name.rfind("no", 0) == 0 && !word.value ? find_flag(word.name.substr(2)) : nullptr;
    const auto* place = negated ? std::get_if<Switch>(&negated->place) : nullptr;
    if (!place) refuse_unknown(text, word.name);
    flags_.*(*place) = false;
  }

  std::string value(const Flag& flag, const Word& word) {
    if (word.value) return *word.value;
    if (next_ == words_.size() || words_[next_].rfind("--", 0) == 0) {
      throw Refusal("--" + flag.name + ": it has no value. Write --" + flag.name + "=VALUE.");
    }
    return words_[next_++];
  }

  bool truth(const Flag& flag, const Word& word) {
    if (!word.value) {
      const auto follows = next_ < words_.size() ? to_truth(words_[next_]) : std::nullopt;
      if (follows) ++next_;
      return follows.value_or(true);
    }
    const auto value = to_truth(*word.value);
    if (!value) throw Refusal("--" + flag.name + "=" + *word.value + ": this takes true or false.");
    return *value;
  }

  const std::vector<std::string>& words_;
  std::size_t next_ = 0;
  Flags flags_;
};

}  // namespace

Flags parse_flags(const std::vector<std::string>& words) {
  const Flags flags = Parser(words).parse();
  if (flags.help) return flags;
  if (flags.infer_model.empty())
    throw Refusal("--infer_model: it is missing. Name a model.xml, a model.onnx or its folder.");
  if (flags.infer_data.empty()) throw Refusal("--infer_data: it is missing. Name a file that `quaver convert-data` wrote.");
  return flags;
}

std::string usage() {
  std::ostringstream text;
  text << "sample_tester: run a model on a binary data file with OpenVINO, and print its speed and accuracy.\n\n"
          "  sample_tester --infer_model=MODEL --infer_data=FILE [--flag=value ...]\n\n";
  const Flags defaults;
  for (const Flag& flag : all_flags()) {
    std::string shown = "  --" + flag.name;
    if (const auto* number = std::get_if<Number>(&flag.place)) {
      shown += "=" + std::to_string(defaults.*(*number));
    } else if (const auto* truth = std::get_if<Switch>(&flag.place)) {
      shown += defaults.*(*truth) ? "=true" : "=false";
    } else {
      shown += "=";
    }
    shown.resize(std::max<std::size_t>(shown.size() + 2, 30), ' ');
    text << shown << flag.meaning << "\n";
  }
  return text.str();
}

}  // namespace quaver

#include "report.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

namespace quaver {
namespace {

// The figures that are computed from others, once for text and JSON alike.
struct Figures {
  double batch_ms;
  double sample_ms;
  double fps;
  double top1;
  double top5;
};

Figures figures_of(const Report& report) {
  const auto passes = static_cast<double>(report.flags.repeat);
  const auto batches = passes * static_cast<double>(report.plan.iterations);
  const auto samples = static_cast<double>(report.plan.samples);
  const double ms = report.result.ms;
  return {ms / batches, ms / (passes * samples), 1000 * passes * samples / ms,
          static_cast<double>(report.result.hits.top1) / samples, static_cast<double>(report.result.hits.top5) / samples};
}

using Layer = std::pair<std::string, LayerTime>;

std::vector<Layer> slowest_first(const Result& result) {
  std::vector<Layer> layers(result.layers.begin(), result.layers.end());
  std::stable_sort(layers.begin(), layers.end(),
                   [](const Layer& a, const Layer& b) { return a.second.time > b.second.time; });
  return layers;
}

double us_per_batch(const LayerTime& layer, const Report& report) {
  return static_cast<double>(layer.time.count()) / static_cast<double>(report.plan.iterations * report.flags.repeat);
}

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << '"';
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out << '\\' << c;
    } else if (code < 0x20) {
      out << "\\u" << std::hex << std::setw(4) << std::setfill('0') << int{code} << std::dec;
    } else {
      out << c;
    }
  }
  out << '"';
  return out.str();
}

std::ostream& hits(std::ostream& out, const char* name, double share, std::int64_t count, std::int64_t samples) {
  return out << name << std::setprecision(4) << share << " (" << count << " of " << samples << ")";
}

}  // namespace

void print_batch(std::ostream& out, const Batch& batch, const Plan& plan, const Flags& flags) {
  const auto samples = static_cast<double>(batch.samples);
  out << std::fixed << "batch " << batch.iteration + 1 << "/" << plan.iterations;
  if (flags.repeat > 1) out << " of pass " << batch.pass + 1 << "/" << flags.repeat;
  out << std::setprecision(3) << ": " << batch.samples << " images, " << batch.ms << " ms, " << batch.ms / samples
      << " ms/image, " << std::setprecision(1) << 1000 * samples / batch.ms << " fps";
  if (!flags.speed_only && batch.pass == 0) {
    out << std::setprecision(4) << ", top-1 " << static_cast<double>(batch.hits.top1) / samples << ", top-5 "
        << static_cast<double>(batch.hits.top5) / samples;
  }
  out << "\n";
}

void print_totals(std::ostream& out, const Report& report) {
  const Figures figures = figures_of(report);
  out << std::fixed << std::setprecision(3);
  out << "\nthreads:        " << report.model.threads();
  out << "\nbatch size:     " << report.plan.batch_size;
  out << "\niterations:     " << report.plan.iterations << ", " << report.plan.samples << " images";
  if (report.flags.repeat > 1) out << ", " << report.flags.repeat << " times";
  out << "\nbatch latency:  " << figures.batch_ms << " ms";
  out << "\nsample latency: " << figures.sample_ms << " ms";
  out << "\nfps:            " << std::setprecision(1) << figures.fps << "\n";
  if (!report.flags.speed_only) {
    const Hits& total = report.result.hits;
    hits(out, "top-1:          ", figures.top1, total.top1, report.plan.samples) << "\n";
    hits(out, "top-5:          ", figures.top5, total.top5, report.plan.samples) << "\n";
  }
}

void print_layers(std::ostream& out, const Report& report) {
  double total = 0;
  for (const auto& [name, layer] : report.result.layers) total += us_per_batch(layer, report);
  out << "\n  µs/batch  share  type                 exec type                 name\n";
  for (const auto& [name, layer] : slowest_first(report.result)) {
    const double us = us_per_batch(layer, report);
    out << std::fixed << std::setprecision(1) << std::right << std::setw(10) << us << std::setw(6)
        << (total > 0 ? 100 * us / total : 0) << "%  " << std::left << std::setw(20) << layer.type << " " << std::setw(25)
        << layer.exec_type << " " << name << "\n";
  }
}

std::string to_json(const Report& report) {
  const Figures figures = figures_of(report);
  std::ostringstream out;
  out << std::setprecision(12) << "{\"model\": " << quoted(report.model.file().string())
      << ", \"data\": " << quoted(report.flags.infer_data) << ", \"threads\": " << report.model.threads()
      << ", \"batch_size\": " << report.plan.batch_size << ", \"iterations\": " << report.plan.iterations
      << ", \"samples\": " << report.plan.samples << ", \"repeat\": " << report.flags.repeat
      << ", \"warmup_size\": " << report.flags.warmup_size << ", \"batch_ms\": " << figures.batch_ms
      << ", \"sample_ms\": " << figures.sample_ms << ", \"fps\": " << figures.fps;
  if (!report.flags.speed_only) {
    const Hits& total = report.result.hits;
    out << ", \"top1\": " << figures.top1 << ", \"top5\": " << figures.top5 << ", \"top1_hits\": " << total.top1
        << ", \"top5_hits\": " << total.top5 << ", \"samples_with_nan\": " << total.with_nan;
  }
  if (report.flags.profile) {
    out << ", \"layers\": [";
    const char* between = "";
    for (const auto& [name, layer] : slowest_first(report.result)) {
      out << between << "{\"name\": " << quoted(name) << ", \"type\": " << quoted(layer.type)
          << ", \"exec_type\": " << quoted(layer.exec_type) << ", \"us_per_batch\": " << us_per_batch(layer, report) << "}";
      between = ", ";
    }
    out << "]";
  }
  out << "}";
  return out.str();
}

}  // namespace quaver

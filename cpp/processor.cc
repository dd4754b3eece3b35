#include "processor.h"

#include <cstdlib>
#include <ostream>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace quaver {
namespace {

constexpr unsigned kFeatures = 7;        // leaf
constexpr unsigned kAmxTile = 1u << 24;  // in edx of it
constexpr unsigned kTiles = 0x1D;        // leaf: subleaf 0 has how many kinds of tiles there are, subleaf 1 the first
constexpr unsigned kLow = 0xFFFF;
constexpr const char* kLimit = "ONEDNN_MAX_CPU_ISA";
constexpr const char* kOldLimit = "DNNL_MAX_CPU_ISA";
constexpr const char* kWithoutAmx = "AVX512_CORE_FP16";  // a limit, not a claim: right for processors without FP16 as well

bool announces_amx(const Cpuid& ask) { return ask(kFeatures, 0).edx & kAmxTile; }

bool describes_tiles(const Cpuid& ask) {
  const Registers first = ask(kTiles, 1);
  return ask(kTiles, 0).eax > 0 && first.ebx >> 16 > 0 && (first.ebx & kLow) > 0 && (first.ecx & kLow) > 0;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers answer{0, 0, 0, 0};
#if defined(__x86_64__) || defined(__i386__)
  __get_cpuid_count(leaf, subleaf, &answer.eax, &answer.ebx, &answer.ecx, &answer.edx);
#else
  static_cast<void>(leaf), static_cast<void>(subleaf);
#endif
  return answer;
}

void keep_off_doubtful_amx(std::ostream& notes, const Cpuid& ask) {
  if (is_set(kLimit) || is_set(kOldLimit) || !announces_amx(ask) || describes_tiles(ask)) return;
  setenv(kLimit, kWithoutAmx, 1);
  notes << "note: this processor announces AMX, but does not describe its tiles: OpenVINO would die of it, and goes without ("
        << kLimit << "=" << kWithoutAmx << "). Set " << kLimit << " to choose otherwise.\n";
}

}  // namespace quaver

// processor_test PALETTES TILES ROW_BYTES ROWS: what the tester notes on a processor that announces AMX and describes its
// tiles like this, and then the limit that the engine would see. `tests/cpp` runs it.

#include <cstdlib>
#include <iostream>
#include <string>

#include "processor.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const auto given = [&](int place) { return static_cast<unsigned>(std::stoul(argv[place])); };
  const auto answer = [&](unsigned leaf, unsigned subleaf) -> quaver::Registers {
    if (leaf == 7 && subleaf == 0) return {0, 0, 0, 1u << 24};
    if (leaf == 0x1D && subleaf == 0) return {given(1), 0, 0, 0};
    if (leaf == 0x1D && subleaf == 1) return {0, given(2) << 16 | given(3), given(4), 0};
    return {0, 0, 0, 0};
  };
  quaver::keep_off_doubtful_amx(std::cout, answer);
  const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  std::cout << "limit: " << (limit ? limit : "") << "\n";
}

// What the processor can really do.
#pragma once

#include <functional>
#include <iosfwd>

namespace quaver {

struct Registers {
  unsigned eax, ebx, ecx, edx;
};

// Answers CPUID: leaf and subleaf. Another processor's answers may stand in for this one's.
using Cpuid = std::function<Registers(unsigned, unsigned)>;

// This processor's answers; zeros for a leaf that it does not know, and on processors of another kind.
Registers cpuid(unsigned leaf, unsigned subleaf);

// Some hypervisors announce AMX and hide the description of its tiles. OpenVINO's oneDNN then configures tiles of size 0 and
// dies of an illegal instruction. There, this limits oneDNN to what comes before AMX, by the environment, and notes it; a
// limit that the user set stays. It must come before the engine first computes.
void keep_off_doubtful_amx(std::ostream& notes, const Cpuid& ask = cpuid);

}  // namespace quaver

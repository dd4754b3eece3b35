// What a run gave, as text and as JSON.
#pragma once

#include <ostream>
#include <string>

#include "tester.h"

namespace quaver {

// The figures of a run, and what they were measured with.
struct Report {
  const Flags& flags;
  const Plan& plan;
  const Model& model;
  const Result& result;
};

void print_batch(std::ostream& out, const Batch& batch, const Plan& plan, const Flags& flags);
void print_totals(std::ostream& out, const Report& report);
void print_layers(std::ostream& out, const Report& report);

// All figures as one line of JSON.
std::string to_json(const Report& report);

}  // namespace quaver

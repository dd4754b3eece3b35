// The one exception of the tester.
#pragma once

#include <stdexcept>

namespace quaver {

// Anything the tester refuses to do. The message says the place, the fact and the way out, in that order.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace quaver

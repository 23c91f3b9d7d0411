// What a run guarantees about the bits of its results.
#pragma once

#include <string_view>

namespace trireme {

enum class Numerics {
  kFast,       // results within the bounds of the arithmetic; the same bits for the same cuts, whatever the threads
  kInvariant,  // the same bits however the job is cut, as far as a plan is accepted
};

constexpr std::string_view to_string(Numerics numerics) {
  return numerics == Numerics::kInvariant ? "invariant" : "fast";
}

}  // namespace trireme

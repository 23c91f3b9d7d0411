// Sizes that models can have. Beyond these a graph alone would fill the memory of any machine, or numbers of tokens,
// labels and positions would not fit in 32 bits; larger ones are refused before anything is built.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/keys.h"

namespace trireme::nn {

using trireme::kMostOfASize;
inline constexpr int64_t kMostLayers = 100'000;

// Throws kInvalidArgument naming the model and what is too large.
inline void check_sizes(std::string_view model, int64_t layers,
                        std::initializer_list<std::pair<std::string_view, int64_t>> sizes) {
  require(layers <= kMostLayers, "{}: {} layers; it must be at most {}", model, layers, +kMostLayers);
  for (const auto& [what, size] : sizes) {
    require(size <= kMostOfASize, "{}: {} {}; it must be at most {}", model, what, size, +kMostOfASize);
  }
}

}  // namespace trireme::nn

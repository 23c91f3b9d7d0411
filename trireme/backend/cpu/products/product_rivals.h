// Which way to multiply f32 matrices takes the least time on this machine (mesh/tuning.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "trireme/backend/cpu/products/product.h"
#include "trireme/base/cores.h"

namespace trireme::cpu {

// "f32:4096x768x256:nt"; "" where the product takes too little time for the way to matter.
std::string measured_key(const Product& product);
// Multiplies the block that most of the product's time goes into, or a part of it, in all ways in turns, for some
// hundredths of a second, or tenths where the product itself takes long, while other threads multiply in the same way
// on these cores: "sgemm", "blocks" or "tiles". The usual way stays unless another takes 3 % less.
std::string_view quickest_way(const Product& product, std::span<const Cores> others = {}, Way usual = Way::kSgemm);

}  // namespace trireme::cpu

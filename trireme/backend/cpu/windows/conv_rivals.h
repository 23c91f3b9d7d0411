// Which way to convolve takes the least time on this machine (mesh/tuning.h): of the kernels of a pass that can run.
#pragma once

#include <string>
#include <string_view>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/windows/conv_windows.h"

namespace trireme::cpu {

// "" where conv_winograd.cpp and conv_packed.cpp (by either of its products) compute a pass of these types; else the
// reason.
template <Pass pass>
std::string why_no_winograd(const TypeArgs& args);
template <Pass pass>
std::string why_no_packed(const TypeArgs& args);
template <Pass pass>
std::string why_no_tiled(const TypeArgs& args);

// "conv2d:8x56x56x64:64x3x3x64:1.1:1.1" (strides, and padding before); "" where there is one way only, or it takes too
// little time to matter.
template <Pass pass>
std::string measured_conv(const TypeArgs& args);
// Runs all of a pass's kernels that can, in turns, on this thread and on others: the end of the quickest one's name.
template <Pass pass>
std::string_view quickest_conv(const TypeArgs& args, std::span<const Cores> others);

template <Pass pass>
inline constexpr Rivals kConvRivals{.key = measured_conv<pass>, .quickest = quickest_conv<pass>};

}  // namespace trireme::cpu

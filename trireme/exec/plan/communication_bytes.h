// How many bytes communication takes: what is sent, and the scratch memory in which it is packed and staged on the
// host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/op/op_def.h"
#include "trireme/tensor/dtype.h"

namespace trireme {

// Bytes of packing space that the collective needs on these local types.
int64_t collective_scratch(const OpDef& op, const TypeArgs& types);

// Bytes that the rank at this place of its group sends, as comm::World::Traffic counts them; kAnyPlace: the most that
// any does. `offsets`: where the results lie, for those that lie side by side are sent as one.
inline constexpr int64_t kAnyPlace = -1;
int64_t collective_bytes(const OpDef& op, const TypeArgs& types, std::span<const int64_t> offsets, int64_t place);

// Elements side by side in memory. Runs that follow each other with no more than alignment between them are sent as
// one, with what lies between.
struct Run {
  int64_t offset = 0;  // bytes
  DType dtype = DType::kF32;
  int64_t elements = 0;
  int64_t end() const { return offset + elements * size_of(dtype); }
};
std::vector<Run> joined(std::vector<Run> runs);

// Bytes of staging for different buffers of these sizes, at most.
int64_t staging_bytes(std::span<const int64_t> buffers);

}  // namespace trireme

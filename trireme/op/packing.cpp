#include "trireme/op/packing.h"

namespace trireme {
namespace {

// Whether the pieces along `dim` are runs of bytes one after the other.
bool contiguous_along(const Shape& shape, int64_t dim) {
  for (int64_t d = 0; d < dim; ++d) {
    if (shape[static_cast<int>(d)] != 1) return false;
  }
  return true;
}

int64_t bytes_of_all(std::span<const TensorType> types) {
  int64_t bytes = 0;
  for (const TensorType& type : types) bytes += type.bytes();
  return bytes;
}

}  // namespace

bool packs_slots(const GroupCall& call, size_t operands) {
  return operands > 1 && (call.parted >= 0) != (call.joined >= 0);
}

Packing packing_of(const OpDef& op, const TypeArgs& types) {
  const GroupCall call = op.collective->call(types.attrs);
  if (packs_slots(call, types.in.size())) {
    return call.joined >= 0 ? Packing{.come = bytes_of_all(types.out)} : Packing{.sent = bytes_of_all(types.in)};
  }
  if (call.parted >= 0 && call.joined >= 0) return {types.in[0].bytes(), types.out[0].bytes()};
  if (call.joined >= 0 && !contiguous_along(types.out[0].shape, call.joined)) return {.come = types.out[0].bytes()};
  if (call.parted >= 0 && !contiguous_along(types.in[0].shape, call.parted)) return {.sent = types.in[0].bytes()};
  return {};
}

}  // namespace trireme

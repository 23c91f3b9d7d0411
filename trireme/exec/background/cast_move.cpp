#include "trireme/exec/background/cast_move.h"

#include "trireme/base/error.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

View place_of_result(const View& to, std::span<std::byte> staging) {
  if (to.memory == Memory::kHost) return to;
  invariant(staging.size() == static_cast<size_t>(to.bytes()), "{} bytes are made in {} bytes of staging", to.bytes(),
            staging.size());
  return {staging.data(), to.type, Memory::kHost};
}

}  // namespace

BoundCastMove::BoundCastMove(const View& from, const View& to, std::span<std::byte> staging, KernelFn* cast,
                             const std::string& what, Device& device, DeviceStream& compute, HostLane& lane)
    : from_(from),
      to_(to),
      made_(place_of_result(to, staging)),
      attrs_(Attrs::of(CastAttrs{to.type.dtype})),
      op_({.kernel = cast,
           .args = {.in = {&from_, 1},
                    .out = {&made_, 1},
                    .in_place = {},
                    .out_place = {},
                    .attrs = attrs_,
                    .scratch = {},
                    .state = &state_},
           .what = &what,
           .made = made_.data == to.data ? View{} : made_,
           .copied = to},
          device, compute, lane) {}

}  // namespace trireme

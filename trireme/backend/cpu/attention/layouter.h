// The scratch of attention's tasks: arrays laid out one after the other, for each thread.
#pragma once

#include "trireme/backend/cpu/attention/attention_sizes.h"
#include "trireme/backend/cpu/products/onednn.h"

namespace trireme::cpu {

// Lays arrays out one after the other, each on its own cache lines; counts bytes when there is no
// memory yet.
class Layouter {
 public:
  explicit Layouter(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(int64_t count) {
    std::byte* mine = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += aligned(count * static_cast<int64_t>(sizeof(T)));
    return reinterpret_cast<T*>(mine);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

// A Room is made of the sizes and memory, and says how many bytes it has.
template <class Room>
int64_t scratch_of(const TypeArgs& args, int threads) {
  return kAlign + threads * Room(sizes_of(args), nullptr).bytes;
}

template <class Room>
Room room_of(const AttentionSizes& n, const KernelArgs& args, int thread) {
  return Room(n, align(args.scratch.data()) + thread * Room(n, nullptr).bytes);
}

}  // namespace trireme::cpu

#include "trireme/base/small_blocks.h"

#include <sys/mman.h>

namespace trireme {

bool SmallBlocks::reserve(size_t bytes) {
  const size_t runs = bytes / kRunBytes;
  void* const range =
      mmap(nullptr, runs * kRunBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (runs == 0 || range == MAP_FAILED) return false;                  // NOLINT: the system's own name
  static_cast<void>(madvise(range, runs * kRunBytes, MADV_HUGEPAGE));  // else they are small ones
  begin_ = address(range);
  kind_of_run_ = static_cast<uint8_t*>(range);
  used_ = (runs + kRunBytes - 1) / kRunBytes * kRunBytes;
  size_ = runs * kRunBytes;
  return true;
}

void SmallBlocks::give_back_from_elsewhere(void* block) {
  auto* const free = new (block) Free{from_elsewhere_.load(std::memory_order_relaxed)};
  while (
      !from_elsewhere_.compare_exchange_weak(free->next, free, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void* SmallBlocks::take_more(size_t kind) {
  for (Free* block = from_elsewhere_.exchange(nullptr, std::memory_order_acquire); block != nullptr;) {
    Free* const next = block->next;
    give_back(block);
    block = next;
  }
  OfKind& of = kinds_[kind];
  if (of.free != nullptr) return pop(of);
  if (used_ + kRunBytes > size_) return nullptr;
  char* const run = reinterpret_cast<char*>(begin_ + used_);  // NOLINT: it lies in the range
  used_ += kRunBytes;
  kind_of(run) = static_cast<uint8_t>(kind);
  of.left = run;
  of.end = run + kRunBytes / bytes_of(kind) * bytes_of(kind);
  return cut(of, kind);
}

}  // namespace trireme

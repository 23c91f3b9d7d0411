#include "trireme/comm/engine/block_pool.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <thread>

namespace trireme::comm {
namespace {

constexpr size_t kSmallest = 64;  // bytes of a block of class 0; of each class twice the last one's
constexpr size_t kAlignment = 64;
constexpr size_t kFirstBytes = 32 << 10;  // of the blocks of a class, when it is first asked for

#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeepsBlocks = false;
#else
constexpr bool kKeepsBlocks = true;
#endif

bool is_kept(size_t bytes, size_t alignment) {
  return kKeepsBlocks && bytes <= BlockPool::kLargest && alignment <= kAlignment;
}

size_t class_of(size_t bytes) {
  return static_cast<size_t>(std::bit_width((std::max<size_t>(bytes, 1) - 1) / kSmallest));
}

}  // namespace

void BlockPool::SpinLock::lock() {
  while (taken_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
}

BlockPool::~BlockPool() {
  for (const std::span<std::byte> slab : slabs_) {
    upstream_->deallocate(slab.data(), slab.size(), kAlignment);
  }
}

void BlockPool::reserve(size_t bytes) {
  if (!is_kept(bytes, 1)) return;
  const std::lock_guard lock(lock_);
  for (size_t i = 0; i <= class_of(bytes); ++i) {
    if (classes_[i].blocks == 0) grow(i);
  }
}

void BlockPool::retire() {
  bool is_last = false;
  {
    const std::lock_guard lock(lock_);
    retired_ = true;
    is_last = in_use_ == 0;
  }
  if (is_last) delete this;
}

void* BlockPool::do_allocate(size_t bytes, size_t alignment) {
  const bool kept = is_kept(bytes, alignment);
  void* out = kept ? nullptr : upstream_->allocate(bytes, alignment);
  const std::lock_guard lock(lock_);
  if (kept) {
    SizeClass& of_size = classes_[class_of(bytes)];
    if (of_size.free == nullptr) grow(class_of(bytes));
    out = of_size.free;
    of_size.free = of_size.free->next;
  }
  ++in_use_;
  return out;
}

void BlockPool::do_deallocate(void* block, size_t bytes, size_t alignment) {
  const bool kept = is_kept(bytes, alignment);
  if (!kept) upstream_->deallocate(block, bytes, alignment);
  bool is_last = false;
  {
    const std::lock_guard lock(lock_);
    if (kept) {
      SizeClass& of_size = classes_[class_of(bytes)];
      of_size.free = new (block) FreeBlock{of_size.free};
    }
    is_last = --in_use_ == 0 && retired_;
  }
  if (is_last) delete this;
}

// Doubles the number of blocks of this class.
void BlockPool::grow(size_t size_class) {
  SizeClass& of_size = classes_[size_class];
  const size_t bytes = kSmallest << size_class;
  const size_t count = of_size.blocks > 0 ? of_size.blocks : kFirstBytes / bytes;
  slabs_.reserve(slabs_.size() + 1);
  const std::span slab(static_cast<std::byte*>(upstream_->allocate(count * bytes, kAlignment)), count * bytes);
  slabs_.push_back(slab);
  for (size_t i = 0; i < count; ++i) {
    of_size.free = new (slab.data() + i * bytes) FreeBlock{of_size.free};
  }
  of_size.blocks += count;
}

}  // namespace trireme::comm

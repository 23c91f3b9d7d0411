// BlockPool: memory that is reused. Blocks that come back are kept by size, so that a
// program that repeats itself takes nothing more from the heap after its first rounds. Any thread
// may call it. Blocks above kLargest bytes come from `upstream` each time. Under the address
// sanitizer all do, so that it sees every block.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

namespace trireme::comm {

class BlockPool final : public std::pmr::memory_resource {
 public:
  static constexpr size_t kLargest = size_t{16} << 10;

  explicit BlockPool(std::pmr::memory_resource* upstream = std::pmr::new_delete_resource()) : upstream_(upstream) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() override;  // when all blocks are back

  // Allocates the memory for blocks of up to this many bytes now, not when they are first asked for.
  void reserve(size_t bytes);
  // Ends a pool that was made by new: now, or when its last block comes back.
  void retire();

 private:
  struct FreeBlock {
    FreeBlock* next;
  };
  struct SizeClass {
    FreeBlock* free = nullptr;
    size_t blocks = 0;  // free or not
  };
  // Taken for a few instructions, where a mutex costs more than what it guards.
  class SpinLock {
   public:
    void lock();
    void unlock() { taken_.clear(std::memory_order_release); }

   private:
    std::atomic_flag taken_;
  };
  static constexpr size_t kClasses = 9;  // 64 bytes, 128, ... kLargest

  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* block, size_t bytes, size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
  void grow(size_t size_class);

  std::pmr::memory_resource* upstream_;
  SpinLock lock_;  // guards what follows
  std::array<SizeClass, kClasses> classes_;
  std::vector<std::span<std::byte>> slabs_;
  size_t in_use_ = 0;  // blocks of any size
  bool retired_ = false;
};

struct RetirePool {
  void operator()(BlockPool* pool) const { pool->retire(); }
};

}  // namespace trireme::comm

// SmallBlocks: memory for the very many small objects that one thread makes and drops. A block that is given back goes
// to those of its size, and the next of that size comes from there: each takes a few instructions, and no block needs
// bytes beside its own. It is meant for a process that has one work to do and ends: no memory goes back to the system,
// so a process has as much as it needed at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace trireme {

class SmallBlocks {
 public:
  static constexpr size_t kMostBytes = 1024;  // of a block

  // Nothing is done at its end, so that what is given back later still than that finds it.
  constexpr SmallBlocks() = default;

  // Once, before anything is taken: a range of so many addresses, whose memory comes as it is written to, in large
  // pages where the system has any, so that the processor finds it with few entries of its tables. False where the
  // system has no such range; then no block ever comes.
  bool reserve(size_t bytes);

  bool has(const void* block) const { return address(block) - begin_ < size_; }

  // A block of so many bytes, at most kMostBytes, which begins at a multiple of 16; null: there are no more.
  void* take(size_t bytes) {
    const size_t kind = (bytes + kStep - 1) / kStep;
    OfKind& from = kinds_[kind];
    if (from.free != nullptr) return pop(from);
    return from.left != from.end ? cut(from, kind) : take_more(kind);
  }
  // By the thread that takes.
  void give_back(void* block) { push(kinds_[kind_of(block)], block); }
  // By any other thread: it can be taken again once the blocks of some size are used up.
  void give_back_from_elsewhere(void* block);

 private:
  static constexpr size_t kStep = 16, kKinds = kMostBytes / kStep + 1;
  static constexpr size_t kRunBytes = 64 << 10;  // of blocks of one kind

  struct Free {
    Free* next = nullptr;
  };
  struct OfKind {
    Free* free = nullptr;
    char *left = nullptr, *end = nullptr;  // of its last run, what was never taken
  };

  static uintptr_t address(const void* block) {
    return reinterpret_cast<uintptr_t>(block);  // NOLINT: whether it lies in the range
  }
  static size_t bytes_of(size_t kind) { return kind == 0 ? kStep : kind * kStep; }
  uint8_t& kind_of(const void* block) const { return kind_of_run_[(address(block) - begin_) / kRunBytes]; }

  static void* pop(OfKind& from) {
    Free* const block = from.free;
    from.free = block->next;
    return block;
  }
  static void push(OfKind& to, void* block) { to.free = new (block) Free{to.free}; }
  static void* cut(OfKind& from, size_t kind) {
    char* const block = from.left;
    from.left += bytes_of(kind);
    return block;
  }
  void* take_more(size_t kind);

  uintptr_t begin_ = 0;
  size_t size_ = 0, used_ = 0;
  uint8_t* kind_of_run_ = nullptr;  // at the range's begin
  std::array<OfKind, kKinds> kinds_{};
  std::atomic<Free*> from_elsewhere_{nullptr};
};

}  // namespace trireme

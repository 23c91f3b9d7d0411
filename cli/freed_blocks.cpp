#include "cli/freed_blocks.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // which have their own

void trireme::cli::keep_freed_blocks() {}

#else

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace trireme::cli {
namespace {

constexpr size_t kStep = 16;                                          // bytes, by which the sizes of blocks differ
constexpr size_t kMost = 512;                                         // bytes of a block that comes from a span
constexpr size_t kSpan = size_t{64} << 10, kSpans = size_t{1} << 18;  // bytes of one; how many there may be

// Addresses for all spans, of which memory is taken where they are written to. None before keep_freed_blocks.
std::byte* spans = nullptr;
size_t bytes_of_spans = 0;
std::atomic<size_t> spans_taken{0};
std::array<uint8_t, kSpans> steps_of_span{};  // of each block in it

struct Freed {
  Freed* next;
};
struct BlocksOfSize {
  Freed* freed = nullptr;
  std::byte *unused = nullptr, *end = nullptr;  // of the last span
};
thread_local constinit std::array<BlocksOfSize, kMost / kStep + 1> blocks{};  // by the steps of their size

size_t place_in_spans(const void* block) {
  return reinterpret_cast<uintptr_t>(block) - reinterpret_cast<uintptr_t>(spans);  // NOLINT: of any block
}

bool is_in_span(const void* block) {
  return place_in_spans(block) < bytes_of_spans;
}

void keep(void* block, size_t steps) {
  blocks[steps].freed = ::new (block) Freed{blocks[steps].freed};
}

void* from_library(size_t bytes) {
  for (;;) {
    if (void* const block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

[[gnu::noinline]] void* from_span(BlocksOfSize& of_size, size_t steps) {
  const size_t bytes = steps * kStep;
  if (static_cast<size_t>(of_size.end - of_size.unused) < bytes) {
    const size_t span = spans_taken.fetch_add(1, std::memory_order_relaxed);
    if (span >= kSpans) return from_library(bytes);
    steps_of_span[span] = static_cast<uint8_t>(steps);
    of_size.unused = spans + span * kSpan;
    of_size.end = of_size.unused + kSpan;
  }
  return std::exchange(of_size.unused, of_size.unused + bytes);
}

}  // namespace

void keep_freed_blocks() {
  void* const found =
      ::mmap(nullptr, kSpans * kSpan, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return;  // where addresses are few, all come from the C library
  spans = static_cast<std::byte*>(found);
  bytes_of_spans = kSpans * kSpan;
}

}  // namespace trireme::cli

// Those for arrays and those that do not throw call these.
void* operator new(size_t bytes) {
  using namespace trireme::cli;  // NOLINT(google-build-using-namespace)
  if (bytes > kMost || bytes_of_spans == 0) return from_library(bytes);
  const size_t steps = bytes == 0 ? 1 : (bytes + kStep - 1) / kStep;
  BlocksOfSize& of_size = blocks[steps];
  if (of_size.freed == nullptr) return from_span(of_size, steps);
  return std::exchange(of_size.freed, of_size.freed->next);
}
void operator delete(void* block) noexcept {
  using namespace trireme::cli;  // NOLINT(google-build-using-namespace)
  if (!is_in_span(block)) return std::free(block);
  keep(block, steps_of_span[place_in_spans(block) / kSpan]);
}
void operator delete(void* block, size_t) noexcept {
  operator delete(block);
}

#endif

#include "cli/planning_memory.h"

#include <cstdlib>
#include <new>

#include "trireme/base/small_blocks.h"

// Where a sanitizer looks at all that is allocated, it has its own operators. g++ says so by a macro, clang by a
// feature.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TRIREME_HAS_OPERATORS_OF_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TRIREME_HAS_OPERATORS_OF_SANITIZER
#endif
#ifndef TRIREME_HAS_OPERATORS_OF_SANITIZER

namespace trireme::cli {
namespace {

constinit SmallBlocks blocks;
constinit thread_local bool takes_blocks = false;

void* from_heap(std::size_t bytes) {
  for (;;) {
    if (void* const block = std::malloc(bytes > 0 ? bytes : 1)) return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

void take_small_blocks() {
  constexpr std::size_t kReserved = std::size_t{16} << 30U;  // addresses; what is beyond them comes from the heap
  takes_blocks = blocks.reserve(kReserved);
}

}  // namespace trireme::cli

void* operator new(std::size_t bytes) {
  using namespace trireme;
  if (cli::takes_blocks && bytes <= SmallBlocks::kMostBytes) {
    if (void* const block = cli::blocks.take(bytes)) return block;
  }
  return cli::from_heap(bytes);
}

void operator delete(void* block) noexcept {
  using namespace trireme;
  if (!cli::blocks.has(block)) return std::free(block);
  if (cli::takes_blocks) return cli::blocks.give_back(block);
  cli::blocks.give_back_from_elsewhere(block);
}
void operator delete(void* block, std::size_t /*bytes*/) noexcept {
  operator delete(block);
}

#else

void trireme::cli::take_small_blocks() {}

#endif

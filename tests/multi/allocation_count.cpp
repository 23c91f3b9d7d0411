#include "tests/multi/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> mallocs{0};
std::atomic<int64_t> news{0};
std::atomic<size_t> largest{0};

[[maybe_unused]] void count(std::atomic<int64_t>& calls, size_t bytes) {
  if (!counting.load(std::memory_order_relaxed)) return;
  calls.fetch_add(1, std::memory_order_relaxed);
  size_t before = largest.load();
  while (bytes > before && !largest.compare_exchange_weak(before, bytes)) {
  }
}

}  // namespace

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kCounts = true;

extern "C" {
void* __libc_malloc(size_t bytes);                // NOLINT: glibc's own names
void* __libc_calloc(size_t count, size_t bytes);  // NOLINT
void* __libc_realloc(void* p, size_t bytes);      // NOLINT

void* malloc(size_t bytes) {
  count(mallocs, bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t items, size_t bytes) {
  count(mallocs, items * bytes);
  return __libc_calloc(items, bytes);
}
void* realloc(void* p, size_t bytes) {
  count(mallocs, bytes);
  return __libc_realloc(p, bytes);
}
}

// Those for arrays and those that do not throw call these.
void* operator new(size_t bytes) {
  count(news, bytes);
  if (void* const p = std::malloc(bytes > 0 ? bytes : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  count(news, bytes);
  count(mallocs, bytes);
  const auto unit = static_cast<size_t>(alignment);
  if (void* const p = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
#else
constexpr bool kCounts = false;
#endif

namespace trireme::testing_support {

bool can_count_allocations() {
  return kCounts;
}

void start_counting_allocations() {
  mallocs = 0;
  news = 0;
  largest = 0;
  counting = true;
}

Allocations stop_counting_allocations() {
  counting = false;
  return {mallocs.load(), news.load(), largest.load()};
}

}  // namespace trireme::testing_support

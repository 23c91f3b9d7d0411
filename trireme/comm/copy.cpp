#include "trireme/comm/copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme::comm {
namespace {

constexpr size_t kBeyondCache = size_t{16} << 20;

#if defined(__x86_64__)

constexpr size_t kSmall = 2048;  // up to which memcpy is at its best
constexpr size_t kSmallHandedOver = 512;
constexpr size_t kRegister = 32;  // bytes of a register
constexpr size_t kRound = 4 * kRegister;

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

template <bool past_cache>
[[gnu::target("avx2"), gnu::always_inline]] inline void put(std::byte* to, __m256i line) {
  if constexpr (past_cache) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), line);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), line);
  }
}

// Copies whole rounds and returns how many bytes they were.
template <bool past_cache>
[[gnu::target("avx2")]] size_t copy_rounds(std::byte* to, const std::byte* from, size_t bytes) {
  size_t i = 0;
  for (; i + kRound <= bytes; i += kRound) {
    const auto* const lines = reinterpret_cast<const __m256i*>(from + i);
    const __m256i a = _mm256_loadu_si256(lines);
    const __m256i b = _mm256_loadu_si256(lines + 1);
    const __m256i c = _mm256_loadu_si256(lines + 2);
    const __m256i d = _mm256_loadu_si256(lines + 3);
    put<past_cache>(to + i, a);
    put<past_cache>(to + i + kRegister, b);
    put<past_cache>(to + i + 2 * kRegister, c);
    put<past_cache>(to + i + 3 * kRegister, d);
  }
  if constexpr (past_cache) _mm_sfence();
  return i;
}

#endif

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes, size_t of_bytes) {
  if (of_bytes >= kBeyondCache) return hand_over(to, from, bytes);
  size_t done = 0;
#if defined(__x86_64__)
  if (bytes > kSmall && has_avx2()) done = copy_rounds<false>(to, from, bytes);
#endif
  if (done < bytes) std::memcpy(to + done, from + done, bytes - done);
}

void hand_over(std::byte* to, const std::byte* from, size_t bytes) {
  size_t done = 0;
#if defined(__x86_64__)
  if (bytes > kSmallHandedOver && has_avx2()) {
    done = (kRegister - reinterpret_cast<uintptr_t>(to) % kRegister) % kRegister;  // streams want aligned places
    std::memcpy(to, from, done);
    done += copy_rounds<true>(to + done, from + done, bytes - done);
  }
#endif
  if (done < bytes) std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace trireme::comm

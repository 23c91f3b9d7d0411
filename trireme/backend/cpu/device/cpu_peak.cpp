#include "trireme/backend/cpu/device/cpu_peak.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "trireme/backend/cpu/isa/isa.h"
#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/base/error.h"
#include "trireme/base/thread_pool.h"

namespace trireme {
namespace {

// Best seconds of a run of fn(thread) on every thread.
template <class Fn>
double best_seconds(ThreadPool& pool, int repetitions, Fn&& fn) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = Clock::now();
    pool.run(pool.size(), [&](int64_t part, int) { fn(part); });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i == 0 || seconds < best) best = seconds;
  }
  return best;
}

}  // namespace

Peak measure_peak(ThreadPool& pool, const PeakOptions& options) {
  const int64_t bytes = options.bytes;
  const int64_t n = bytes / static_cast<int64_t>(sizeof(float));
  require(n >= pool.size(), "peak: arrays of {} bytes for {} threads; each thread needs an element", bytes,
          pool.size());
  const auto a = std::make_unique<float[]>(static_cast<size_t>(n));
  const auto b = std::make_unique<float[]>(static_cast<size_t>(n));
  const auto c = std::make_unique<float[]>(static_cast<size_t>(n));
  const cpu::Loops& loops = cpu::loops();
  const int64_t share = n / pool.size();
  const auto moved = static_cast<double>(share * pool.size()) * sizeof(float);
  Peak peak{.threads = pool.size(), .isa = std::string(to_string(isa()))};
  const auto flops_per_s = [&](const cpu::MultiplyAdds& adds) {
    const auto flops = 2.0 * static_cast<double>(options.turns * adds.per_turn * pool.size());
    return flops / best_seconds(pool, options.repetitions,
                                [&](int64_t part) { a[static_cast<size_t>(part)] = adds.run(options.turns); });
  };
  peak.f32_flops_per_s = flops_per_s(loops.f32_peak);
  peak.bf16_flops_per_s = flops_per_s(loops.bf16_peak);
  peak.memcpy_bytes_per_s =
      moved / best_seconds(pool, options.repetitions, [&](int64_t part) {
        std::memcpy(a.get() + part * share, b.get() + part * share, static_cast<size_t>(share) * sizeof(float));
      });
  peak.triad_bytes_per_s =
      3 * moved / best_seconds(pool, options.repetitions, [&](int64_t part) {
        loops.f32.add_scaled(share, b.get() + part * share, c.get() + part * share, 0.5F, a.get() + part * share);
      });
  return peak;
}

}  // namespace trireme

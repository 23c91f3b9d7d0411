#include "trireme/backend/cpu/products/product_rivals.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <vector>

#include "trireme/backend/cpu/products/blocked_product.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

constexpr double kLeastFlops = 32e6;  // of a product: a tenth of a millisecond or more
constexpr double kSeconds = 0.08;     // that are spent on a product, about
constexpr int kLeastTurns = 5, kMostTurns = 15;
constexpr double kMustSave = 0.03;  // of the usual way's time: less may be noise

double flops_of(double m, double n, double k) {
  return 2 * m * n * k;
}

// Of the processor, by this thread: what else runs on the machine counts less than in the time of day.
double worked_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Matrices for a block, and room.
class Sample {
 public:
  explicit Sample(const Product& product) : block_(largest_block(product)) {
    const auto bytes = [](int64_t floats) { return aligned(floats * static_cast<int64_t>(sizeof(float))); };
    const int64_t a = bytes((block_.transpose_a ? block_.k : block_.m) * block_.lda);
    const int64_t b = bytes((block_.transpose_b ? block_.n : block_.k) * block_.ldb);
    const int64_t c = bytes(block_.m * block_.ldc);
    memory_.resize(static_cast<size_t>(kAlign + a + b + c + bytes(blocked_floats(block_.m, block_.n, block_.k))));
    std::byte* const first = align(memory_.data());
    const auto at = [&](int64_t offset) { return reinterpret_cast<float*>(first + offset); };
    // Not zeros, and small enough for sums to stay far from overflow.
    for (int64_t i = 0; i < (a + b) / 4; ++i) at(0)[i] = static_cast<float>(i % 17 - 8) / 16;
    block_.a = at(0);
    block_.b = at(a);
    block_.c = at(a + b);
    room_ = at(a + b + c);
  }

  double seconds(Way way) const {
    const double begin = worked_s();
    if (way == Way::kSgemm) {
      gemm(block_);
    } else {
      multiply_in_blocks(block_, room_);
    }
    return worked_s() - begin;
  }

 private:
  Gemm block_;
  std::vector<std::byte> memory_;
  float* room_ = nullptr;
};

}  // namespace

std::string measured_key(const Product& p) {
  const double flops = flops_of(static_cast<double>(p.m), static_cast<double>(p.n), static_cast<double>(p.k));
  if (flops < kLeastFlops) return "";
  return fmt::format("f32:{}x{}x{}:{}{}{}", p.m, p.n, p.k, p.transpose_a ? 't' : 'n', p.transpose_b ? 't' : 'n',
                     p.onto ? "+" : "");
}

std::string_view quickest_way(const Product& product, Way usual) {
  static constexpr std::array kWays{Way::kSgemm, Way::kBlocks};
  static constexpr std::array<std::string_view, 2> kNames{"sgemm", "blocks"};
  const Sample sample(product);
  const double begin = worked_s();
  for (const Way way : kWays) sample.seconds(way);  // which makes code and brings memory near
  std::array<std::vector<double>, 2> times;
  for (int turn = 0; turn < kMostTurns && (turn < kLeastTurns || worked_s() - begin < kSeconds); ++turn) {
    for (size_t way = 0; way < kWays.size(); ++way) times[way].push_back(sample.seconds(kWays[way]));
  }
  const auto median = [&](size_t way) {
    std::ranges::sort(times[way]);
    return times[way][times[way].size() / 2];
  };
  const size_t first = usual == Way::kSgemm ? 0 : 1;
  return kNames[median(1 - first) < (1 - kMustSave) * median(first) ? 1 - first : first];
}

}  // namespace trireme::cpu

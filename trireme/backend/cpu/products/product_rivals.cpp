#include "trireme/backend/cpu/products/product_rivals.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/backend/cpu/products/blocked_product.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/products/tiled_product.h"
#include "trireme/backend/cpu/quickest.h"
#include "trireme/backend/device.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

double flops_of(int64_t m, int64_t n, int64_t k) {
  return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}
double flops_of(const Gemm& g) {
  return flops_of(g.m, g.n, g.k);
}

// So much of a block that it takes about a hundredth of a second. Its sides and sums stay long enough for the speed of
// the whole.
Gemm shortened(Gemm block) {
  constexpr double kMostFlops = 1e9;
  while (flops_of(block) > kMostFlops) {
    int64_t& longest =
        *std::max({&block.m, &block.n, &block.k}, [](const int64_t* a, const int64_t* b) { return *a < *b; });
    longest = (longest + 1) / 2;
  }
  return block;
}

// Matrices for the block of each way, and room, in memory as a plan's: rows that lie far apart take longer in small
// pages. The ways take turns in it.
class Sample {
 public:
  Sample(const Product& product, std::span<const Way> ways) {
    const auto bytes = [](int64_t floats) { return aligned(floats * static_cast<int64_t>(sizeof(float))); };
    int64_t a = 0, b = 0, c = 0;
    for (const Way way : ways) {
      const Gemm& block = blocks_.emplace_back(way, shortened(largest_block(product, way))).second;
      a = std::max(a, bytes((block.transpose_a ? block.k : block.m) * block.lda));
      b = std::max(b, bytes((block.transpose_b ? block.n : block.k) * block.ldb));
      c = std::max(c, bytes(block.m * block.ldc));
      room_bytes_ = std::max(room_bytes_, bytes(blocked_floats(block.m, block.n, block.k)));
    }
    memory_ = cpu_device().allocate(kAlign + a + b + c + room_bytes_);
    std::ranges::fill(memory_.bytes, std::byte{});
    std::byte* const first = align(memory_.bytes.data());
    const auto at = [&](int64_t offset) { return reinterpret_cast<float*>(first + offset); };
    // Not zeros, and small enough for sums to stay far from overflow.
    for (int64_t i = 0; i < (a + b) / 4; ++i) at(0)[i] = static_cast<float>(i % 17 - 8) / 16;
    for (auto& [way, block] : blocks_) {
      block.a = at(0);
      block.b = at(a);
      block.c = at(a + b);
    }
    room_ = at(a + b + c);
  }

  int64_t bytes() const { return static_cast<int64_t>(memory_.bytes.size()); }
  double flops(size_t which) const { return flops_of(blocks_[which].second); }
  void multiply(size_t which) const {
    const auto& [way, block] = blocks_[which];
    switch (way) {
      case Way::kSgemm:
        return gemm(block);
      case Way::kBlocks:
        return multiply_in_blocks(block, room_);
      case Way::kTiles:
        return multiply_in_tiles(block, reinterpret_cast<std::byte*>(room_), room_bytes_);
    }
  }

 private:
  std::vector<std::pair<Way, Gemm>> blocks_;
  DeviceMemory memory_;
  int64_t room_bytes_ = 0;
  float* room_ = nullptr;
};

}  // namespace

std::string measured_key(const Product& p) {
  if (flops_of(p.m, p.n, p.k) < kLeastMeasuredFlops) return "";
  return fmt::format("f32:{}x{}x{}:{}{}{}", p.m, p.n, p.k, p.transpose_a ? 't' : 'n', p.transpose_b ? 't' : 'n',
                     p.onto ? "+" : "");
}

std::string_view quickest_way(const Product& product, std::span<const Cores> others, Way usual) {
  constexpr double kFlopsWorthASecond = 4e11, kLeastSeconds = 0.08, kMostSeconds = 0.3;
  constexpr std::string_view kNames[] = {"sgemm", "blocks", "tiles"};  // of Way
  std::vector<Way> ways{Way::kSgemm, Way::kBlocks};
  if (why_no_tiles(product).empty()) ways.push_back(Way::kTiles);
  std::vector<Sample> samples;  // of each thread
  samples.emplace_back(product, ways);
  others = some_of(others, samples.front().bytes());
  for (size_t i = 0; i < others.size(); ++i) samples.emplace_back(product, ways);
  std::vector<double> work;
  for (size_t way = 0; way < ways.size(); ++way) work.push_back(samples.front().flops(way));
  const double seconds =
      std::clamp(flops_of(product.m, product.n, product.k) / kFlopsWorthASecond, kLeastSeconds, kMostSeconds) / 2 *
      static_cast<double>(ways.size());
  const Contest contest{
      .ways = ways.size(), .usual = usual == Way::kSgemm ? 0U : 1U, .seconds = seconds, .work = work, .others = others};
  return kNames[quickest_of(contest, [&](size_t way, size_t thread) { samples[thread].multiply(way); })];
}

}  // namespace trireme::cpu

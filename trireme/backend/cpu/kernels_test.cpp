#include "trireme/backend/cpu/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/backend/cpu/cases/kernel_cases_for_tests.h"
#include "trireme/backend/cpu/products/blocked_product.h"
#include "trireme/backend/cpu/products/gemm.h"
#include "trireme/base/log.h"
#include "trireme/base/thread_pool.h"
#include "trireme/op/conformance.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/overwrites.h"
#include "trireme/op/registry.h"

namespace trireme::kernels_test {
namespace {

constexpr size_t kGuard = 64;
constexpr std::byte kMark{0xa5};

// Bytes with a marked guard on both sides.
class Guarded {
 public:
  explicit Guarded(int64_t bytes) : bytes_(static_cast<size_t>(bytes)), all_(bytes_ + 2 * kGuard, kMark) {}
  std::byte* data() { return all_.data() + kGuard; }
  std::span<std::byte> span() { return {data(), bytes_}; }
  bool intact() const {
    const auto marked = [](std::byte b) { return b == kMark; };
    return std::all_of(all_.begin(), all_.begin() + kGuard, marked) &&
           std::all_of(all_.end() - kGuard, all_.end(), marked);
  }

 private:
  size_t bytes_;
  std::vector<std::byte> all_;
};

struct Run {
  std::vector<HostTensor> results;
  std::string broken;  // where a guard was overwritten
};

struct Overwrite {
  int result = -1;
  int operand = -1;
};

// With `overwrite`, that result is written over a copy of that operand.
Run run_kernel(const OpDef& op, const Kernel& kernel, const Example& example, const std::vector<HostTensor>& operands,
               ThreadPool* pool, Overwrite overwrite = {}) {
  const std::vector<TensorType> types = conformance::results_of(op, example);
  std::vector<View> in, out;
  std::vector<TensorType> in_types;
  std::vector<Guarded> bytes;
  for (const HostTensor& operand : operands) {
    in.push_back(operand.view());
    in_types.push_back(operand.type());
  }
  for (const TensorType& type : types) bytes.emplace_back(type.bytes());
  for (size_t i = 0; i < types.size(); ++i) out.push_back({bytes[i].data(), types[i]});
  if (overwrite.result >= 0) {
    View& operand = in[static_cast<size_t>(overwrite.operand)];
    std::byte* place = out[static_cast<size_t>(overwrite.result)].data;
    std::copy_n(operand.data, operand.bytes(), place);
    operand.data = place;
  }
  Guarded scratch(kernel.scratch_bytes({in_types, types, example.attrs}, pool == nullptr ? 1 : pool->size()));
  std::shared_ptr<void> state;
  kernel.run({in, out, {}, {}, example.attrs, scratch.span(), pool, &state});
  Run run;
  for (size_t i = 0; i < types.size(); ++i) {
    HostTensor& result = run.results.emplace_back(types[i]);
    std::copy_n(bytes[i].data(), types[i].bytes(), result.view().data);
    if (!bytes[i].intact()) run.broken = fmt::format("result {} was left", i);
  }
  if (!scratch.intact()) run.broken = "its scratch was left";
  return run;
}

bool same_bits(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const View x = a[i].view();
    if (x.bytes() > 0 && std::memcmp(x.data, b[i].view().data, static_cast<size_t>(x.bytes())) != 0) return false;
  }
  return true;
}

// The length of the longest sum that makes one element: no op here sums over more than one dimension of
// an operand but the reductions, which may sum over all.
int64_t reduction_length(const OpDef& op, const Example& example) {
  if (op.traits.elementwise) return 8;
  if (op.name.ends_with("_sum")) return example.in[0].elements();
  int64_t length = 8;
  for (const TensorType& type : example.in) {
    for (int64_t size : type.shape) length = std::max(length, size);
  }
  return length;
}

// The same numbers in f32, which holds those of bf16 exactly.
HostTensor widened(const HostTensor& tensor) {
  if (tensor.type().dtype != DType::kBF16) return tensor.clone();
  HostTensor wide({DType::kF32, tensor.shape()});
  const auto from = tensor.as<BFloat16>();
  for (size_t i = 0; i < from.size(); ++i) wide.as<float>()[i] = static_cast<float>(from[i]);
  return wide;
}

// What the reference gives. Operands of bf16 are widened first: f32 results of it are not rounded
// to bf16, nor are sums on their way.
std::vector<HostTensor> reference_results(const OpDef& op, const Example& example,
                                          const std::vector<HostTensor>& operands) {
  Example wide = example;
  std::vector<HostTensor> wide_operands;
  for (size_t i = 0; i < operands.size(); ++i) {
    wide_operands.push_back(widened(operands[i]));
    wide.in[i] = wide_operands[i].type();
  }
  return run_kernel(op, *kernels_of(op).back(), wide, wide_operands, nullptr).results;
}

// Where a result is further from the reference's than sums in f32 may differ and, where it is bf16
// and the reference's is not, one rounding: half a unit of the last place of eight bits.
std::string wrong_result(const HostTensor& got, const HostTensor& want, int64_t length, double size) {
  if (got.type() == want.type()) {
    return conformance::difference(got, want, conformance::tolerance(want.type().dtype, length, size));
  }
  const double by_sums = conformance::tolerance(DType::kF32, length, size);
  for (int64_t i = 0; i < want.type().elements(); ++i) {
    const double a = conformance::element(got, i);
    const double b = conformance::element(want, i);
    const double allowed = by_sums + 0x1p-8 * (std::fabs(b) + by_sums);
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= allowed) continue;
    return fmt::format("element {} is {} where {} is right (allowed {})", i, a, b, allowed);
  }
  return "";
}

// Of a kernel that rounds to bf16 what it then multiplies and sums: rounding errs by 2^-9 of each term at most, once
// inside and once in the result, so the error of a whole result is within 2^-8 of it, by their norms.
std::string wrong_by_norm(const HostTensor& got, const HostTensor& want) {
  double off = 0, size = 0;
  for (int64_t i = 0; i < want.type().elements(); ++i) {
    off += std::pow(conformance::element(got, i) - conformance::element(want, i), 2);
    size += std::pow(conformance::element(want, i), 2);
  }
  if (std::sqrt(off) <= 0x1p-8 * std::sqrt(size)) return "";
  return fmt::format("is off by {} of its norm", std::sqrt(off / size));
}

std::vector<Example> cases_of(const OpDef& op) {
  std::vector<Example> cases = op.examples == nullptr ? std::vector<Example>{} : op.examples();
  for (Example& more : more_cases(op.name)) cases.push_back(std::move(more));
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) {
    if (auto narrow = in_bf16(op.name, cases[i])) cases.push_back(*std::move(narrow));
  }
  return cases;
}

// A case, with what the reference makes of it: once for all kernels.
struct KernelCase {
  std::vector<HostTensor> operands, want;
  double size = 0;

  KernelCase(const OpDef& op, const Example& example, uint64_t seed)
      : operands(conformance::operands_of(example, seed)),
        want(reference_results(op, example, operands)),
        size(std::max(conformance::magnitude(operands), conformance::magnitude(want))) {}
};

// A kernel on a case: what is wrong, differs between numbers of threads, or lies outside the
// results.
std::vector<std::string> check(const OpDef& op, const Kernel& kernel, const Example& example, const KernelCase& on,
                               std::span<const int> numbers_of_threads) {
  std::vector<std::string> findings;
  const auto& [operands, want, size] = on;
  const std::vector<TensorType> types = conformance::results_of(op, example);
  const Run alone = run_kernel(op, kernel, example, operands, nullptr);
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string found = kernel.name.ends_with(".pairs")
                                  ? wrong_by_norm(alone.results[i], want[i])
                                  : wrong_result(alone.results[i], want[i], reduction_length(op, example), size);
    if (!found.empty()) findings.push_back(fmt::format("result {} {}", i, found));
  }
  if (!alone.broken.empty()) findings.push_back(alone.broken);
  for (const auto& [result, operand] : overwrites_of(op, {example.in, types, example.attrs})) {
    if (example.in[static_cast<size_t>(operand)] != types[static_cast<size_t>(result)]) continue;
    const Run run = run_kernel(op, kernel, example, operands, nullptr, {result, operand});
    if (!same_bits(run.results, alone.results)) findings.push_back(fmt::format("other bits over operand {}", operand));
  }
  for (const int threads : numbers_of_threads) {
    ThreadPool pool(threads);
    const Run run = run_kernel(op, kernel, example, operands, &pool);
    if (!same_bits(run.results, alone.results)) findings.push_back(fmt::format("other bits with {} threads", threads));
    if (!run.broken.empty()) findings.push_back(run.broken);
  }
  return findings;
}

// An op on an instruction set: each in a test of its own, because oneDNN takes its instruction set
// once a process, and CTest runs each test in one.
struct OpOnIsa {
  const OpDef* op;
  TestIsa isa;
};

std::vector<OpOnIsa> all_with_kernels() {
  std::vector<OpOnIsa> all;
  for (const OpDef* op : all_ops()) {
    if (kernels_of(*op).size() < 2) continue;  // the reference only
    for (const TestIsa& isa : all_test_isas()) all.push_back({op, isa});
  }
  return all;
}

class EveryOp : public testing::TestWithParam<OpOnIsa> {
 protected:
  void TearDown() override { use_machine_isa(); }
};

TEST_P(EveryOp, KernelsAgreeWithTheReferenceOnEveryNumberOfThreads) {
  const auto& [op, isa] = GetParam();
  if (!isa.is_there()) GTEST_SKIP() << "this machine has no " << isa.name();
  isa.use();
  // Emulated instructions take long, and how work is cut into tasks is the same code on every instruction set.
  static constexpr std::array<int, 3> kThreads{3, 2, 1};
  const std::span<const int> threads = std::span(kThreads).first(isa.emulated ? 1 : kThreads.size());
  uint64_t seed = 1;
  for (const Example& example : cases_of(*op)) {
    ++seed;
    const std::vector<TensorType> types = conformance::results_of(*op, example);
    std::optional<KernelCase> on;
    for (const Kernel* kernel : kernels_of(*op)) {
      if (kernel == kernels_of(*op).back()) break;
      if (kernel->why_not != nullptr && !kernel->why_not({example.in, types, example.attrs}).empty()) continue;
      if (!on) on.emplace(*op, example, seed);
      for (const std::string& finding : check(*op, *kernel, example, *on, threads)) {
        ADD_FAILURE() << kernel->name << " on " << conformance::describe(*op, example) << ": " << finding;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryOp, testing::ValuesIn(all_with_kernels()), [](const auto& each) {
  return fmt::format("{}_{}", each.param.op->name, each.param.isa.name());
});

TEST(Kernel, ClaimsLeastOfItsBitsWhereItSaysNothing) {
  EXPECT_EQ((Kernel{.op = "add", .name = "add.new"}.bits), Bits::kShape);
}

TEST(Kernels, ProductsInBlocksTakeAsMuchRoomOnEveryCpu) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {15, 33, 7}, {256, 1024, 384}, {3072, 768, 4096}}) {
    std::set<int64_t> floats;
    for (const TestIsa& isa : all_test_isas()) {
      if (!isa.is_there()) continue;
      isa.use();
      floats.insert(cpu::blocked_floats(m, n, k));
    }
    EXPECT_EQ(floats.size(), 1U) << m << " x " << n << " x " << k;
  }
  use_machine_isa();
}

TEST(Kernels, RefusalsAreLoggedWithTheirReason) {
  std::vector<std::string> lines;
  set_log_levels("warn,dispatch=debug");
  set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  const TensorType wide{DType::kF64, {4}};
  const std::vector<TensorType> in{wide, wide};
  const std::vector<TensorType> out{wide};
  const Attrs none;

  const Kernel& chosen = choose_kernel(op("add"), {in, out, none});

  set_log_sink({});
  set_log_levels("warn");
  EXPECT_EQ(chosen.name, "reference");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("'add.simd' does not run 'add': operand 0 is f64[4], not f32"), std::string::npos)
      << lines[0];
}

// The last two of 15 rows are read by no window of the result's 6 positions: oneDNN would make 7.
TEST(Kernels, pieces_with_rows_that_no_window_reads_are_convolved_without_onednn) {
  const std::vector<TensorType> in{{DType::kF32, {1, 15, 6, 2}}, {DType::kF32, {4, 3, 3, 2}}};
  const Attrs attrs = Attrs::of(Conv2dAttrs{.stride = {2, 1}, .padding = {0, 0, 1, 1}});
  const auto chosen_for = [&](int64_t rows) {
    const std::vector<TensorType> out{{DType::kF32, {1, rows, 6, 4}}};
    return std::string(choose_kernel(op("conv2d"), {in, out, attrs}).name);
  };
  EXPECT_THAT(chosen_for(6), testing::Not(testing::AnyOf(testing::HasSubstr("onednn"), testing::HasSubstr("blocks"))));
  EXPECT_THAT(chosen_for(7), testing::AnyOf(testing::HasSubstr("onednn"), testing::HasSubstr("blocks")));
}

const Kernel& chosen_for(const OpDef& op, const Example& example) {
  const std::vector<TensorType> out = conformance::results_of(op, example);
  return choose_kernel(op, {example.in, out, example.attrs});
}

TEST(Kernels, OnlyWhatTakesNoTimeIsLeftToTheReference) {
  std::vector<std::string_view> left;

  for (const OpDef* op : all_ops()) {
    if (op->kernel && kernels_of(*op).size() < 2) left.push_back(op->name);
  }

  // Coordinates are made once, a reshape or stop_gradient copies bytes or nothing, a pick reads one element a row,
  // batch_statistics a few numbers a channel, fill_beyond what is beyond the end of a piece, and the last two are one
  // number.
  EXPECT_THAT(left, testing::UnorderedElementsAre("iota", "fill_beyond", "reshape", "pick", "stop_gradient",
                                                  "batch_statistics", "clip_scale", "total_of_digits"));
}

TEST(Kernels, WhatRunsOnF32RunsOnBf16) {
  for (const OpDef* op : all_ops()) {
    for (const Example& example : more_cases(op->name)) {
      const std::optional<Example> narrow = in_bf16(op->name, example);
      if (!narrow || chosen_for(*op, example).name == "reference") continue;
      EXPECT_NE(chosen_for(*op, *narrow).name, "reference") << conformance::describe(*op, *narrow);
    }
  }
}

TEST(Kernels, ProductsOfBf16AreWidenedWhereNoInstructionsAreAndSaySo) {
  std::vector<std::string> lines;
  set_log_levels("warn,dispatch=debug");
  set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  set_isa(Isa::kBaseline);
  const TensorType half{DType::kBF16, {4, 4}};

  const Kernel& chosen = chosen_for(op("matmul"), {.in = {half, half}, .attrs = Attrs::of(MatMulAttrs{})});

  set_isa(machine_isa());
  set_log_sink({});
  set_log_levels("warn");
  EXPECT_EQ(chosen.name, "matmul.widened");
  const auto told = [](const std::string& line) {
    return line.find("baseline has no products of bf16") != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(lines, told));
}

TEST(Kernels, ProductsOfBf16UseTheMachinesInstructionsForThem) {
  if (process_isa() < Isa::kAvx512Bf16) GTEST_SKIP() << "this process has no avx512_bf16";
  const TensorType half{DType::kBF16, {4, 4}};

  EXPECT_EQ(chosen_for(op("matmul"), {.in = {half, half}, .attrs = Attrs::of(MatMulAttrs{})}).name, "matmul.bf16");
}

// On any machine: the choice goes by the emulated instructions.
TEST(Kernels, LargerProductsOfBf16RunInTilesWhereThereAreAndNeverInInvariantMode) {
  TestIsa{Isa::kAmx, true}.use();
  const Attrs attrs = Attrs::of(MatMulAttrs{});
  const auto chosen = [&](int64_t m, int64_t n, int64_t k, Numerics numerics) {
    const std::vector<TensorType> in{{DType::kBF16, {m, k}}, {DType::kBF16, {k, n}}};
    const std::vector<TensorType> out{{DType::kBF16, {m, n}}};
    return std::string(choose_kernel(op("matmul"), {in, out, attrs}, numerics).name);
  };
  EXPECT_EQ(chosen(64, 96, 64, Numerics::kFast), "matmul.bf16_tiles");
  EXPECT_NE(chosen(64, 64, 64, Numerics::kFast), "matmul.bf16_tiles");
  EXPECT_NE(chosen(64, 96, 64, Numerics::kInvariant), "matmul.bf16_tiles");
  use_machine_isa();
}

// oneDNN goes by the machine's instructions, not by set_isa.
TEST(Kernels, AConvolutionThatOneDnnHasNoLoopsForRunsAsProductsOnAvx2) {
  if (machine_isa() != Isa::kAvx2) GTEST_SKIP() << "this machine's widest instructions are not avx2";
  const TensorType x{DType::kF32, {2, 14, 14, 6}}, w{DType::kF32, {16, 5, 5, 6}}, y{DType::kF32, {2, 10, 10, 16}};
  EXPECT_EQ(chosen_for(op("conv2d"), {.in = {x, w}, .attrs = Attrs::of(Conv2dAttrs{})}).name, "conv2d.onednn");
  EXPECT_EQ(chosen_for(op("conv2d_grad_input"), {.in = {w, y}, .attrs = Attrs::of(Conv2dAttrs{.size = {14, 14}})}).name,
            "conv2d_grad_input.blocks");
}

// LeNet's two.
TEST(Kernels, ConvolutionsOfFewChannelsHaveLoopsOfTheirOwnOnAvx512) {
  if (machine_isa() < Isa::kAvx512) GTEST_SKIP() << "this machine has no avx512";
  const auto name_of = [](const char* name, TensorType a, TensorType b, Conv2dAttrs attrs) {
    return std::string(chosen_for(op(name), {.in = {a, b}, .attrs = Attrs::of(attrs)}).name);
  };
  const TensorType x{DType::kF32, {2, 28, 28, 1}}, w{DType::kF32, {6, 5, 5, 1}}, y{DType::kF32, {2, 28, 28, 6}};
  EXPECT_EQ(name_of("conv2d", x, w, {.padding = {2, 2}}), "conv2d.few_channels");
  EXPECT_EQ(name_of("conv2d_grad_weight", x, y, {.padding = {2, 2}, .size = {5, 5}}),
            "conv2d_grad_weight.few_channels");
  const TensorType x2{DType::kF32, {2, 14, 14, 6}}, w2{DType::kF32, {16, 5, 5, 6}}, y2{DType::kF32, {2, 10, 10, 16}};
  EXPECT_EQ(name_of("conv2d", x2, w2, {}), "conv2d.onednn");
  EXPECT_EQ(name_of("conv2d_grad_input", w2, y2, {.size = {14, 14}}), "conv2d_grad_input.blocks");
  EXPECT_EQ(name_of("conv2d_grad_weight", x2, y2, {.size = {5, 5}}), "conv2d_grad_weight.onednn");
}

TEST(Kernels, AConvolutionIsComputedInTheWayThatTuningFound) {
  const std::vector<TensorType> in{{DType::kF32, {8, 14, 14, 64}}, {DType::kF32, {64, 3, 3, 64}}};
  const std::vector<TensorType> out{{DType::kF32, {8, 14, 14, 64}}};
  const Attrs attrs = Attrs::of(Conv2dAttrs{.padding = {1, 1}});
  const TypeArgs types{in, out, attrs};
  const Kernel& usual = choose_kernel(op("conv2d"), types);
  ASSERT_NE(usual.rivals, nullptr);
  const std::string work = usual.rivals->key(types);

  EXPECT_EQ(work, "conv2d:8x14x14x64:64x3x3x64:1.1:1.1");
  EXPECT_EQ(usual.name, "conv2d.onednn");
  EXPECT_EQ(choose_kernel(op("conv2d"), types, {"", {{work, "winograd"}}}).name, "conv2d.winograd");
  EXPECT_EQ(choose_kernel(op("conv2d"), types, {"", {{work, "packed"}}}).name, "conv2d.onednn");
}

TEST(Kernels, TheFastestThatCanRunIsChosen) {
  const TensorType single{DType::kF32, {4}};
  const std::vector<TensorType> in{single, single};
  const std::vector<TensorType> out{single};
  const Attrs none;

  EXPECT_EQ(choose_kernel(op("add"), {in, out, none}).name, "add.simd");
}

}  // namespace
}  // namespace trireme::kernels_test

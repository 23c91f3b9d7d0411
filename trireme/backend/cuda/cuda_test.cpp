// The device cuda where there is a GPU; without one, that it says so, and that what it would run compiles where there
// is CUDA's compiler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "trireme/backend/cuda/chain.h"
#include "trireme/backend/cuda/element_code.h"
#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/products.h"
#include "trireme/backend/cuda/sources.h"
#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/op/conformance.h"
#include "trireme/op/registry.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::cuda_test {
namespace {

using namespace cuda;  // NOLINT: what it tests

using testing::ElementsAre;
using testing::HasSubstr;

// Null with the reason where this host has none.
std::shared_ptr<Device> gpu_or_null(std::string& why) {
  try {
    return make_device("cuda");
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUnsupported) throw;
    why = e.text();
    return nullptr;
  }
}

bool has_compiler() {
  try {
    compiler();
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(Cuda, is_told_the_number_of_a_gpu_or_nothing) {
  for (const char* told : {"cuda:first", "cuda:-1", "cuda:1x"}) {
    try {
      make_device(told);
      FAIL();
    } catch (const Error& e) {
      EXPECT_THAT(e.text(), HasSubstr("after the colon stands the number of a GPU, as in cuda:0"));
    }
  }
}

TEST(Cuda, a_host_without_a_gpu_is_told_so) {
  std::string why;
  if (gpu_or_null(why) != nullptr) GTEST_SKIP() << "this host has a GPU";
  EXPECT_THAT(why, testing::AnyOf(HasSubstr("the device 'cuda' needs"), HasSubstr("the device 'cuda' finds no GPU")));
  EXPECT_THAT(why, HasSubstr("use --device cpu"));
}

// Its scratch lies where that of a larger one lay; behind it are somebody's bytes.
TEST(Cuda, a_product_keeps_to_its_own_scratch_after_one_with_more) {
  std::string why;
  const std::shared_ptr<Device> gpu = gpu_or_null(why);
  if (gpu == nullptr) GTEST_SKIP() << why;
  constexpr int64_t kSmall = int64_t{1} << 20, kSum = 1 << 14, kSide = 64;
  const DeviceMemory scratch = gpu->allocate(kLargeWorkspace), operands = gpu->allocate(4 * kSide * (2 * kSum + kSide));
  const std::unique_ptr<DeviceStream> stream = gpu->stream();
  auto& on_gpu = dynamic_cast<CudaStream&>(*stream);
  on_gpu.clear(address(operands.bytes.data()), static_cast<int64_t>(operands.bytes.size()));
  std::byte* const at = operands.bytes.data();
  const Matrix a{at, DType::kF32, kSum, 0, false}, b{at + 4 * kSide * kSum, DType::kF32, kSide, 0, false};
  const Matrix c{at + 8 * kSide * kSum, DType::kF32, kSide, 0, false};
  const Multiply how{.m = kSide, .n = kSide, .k = kSum};
  multiply(on_gpu, scratch.bytes, how, a, b, c);
  on_gpu.clear(address(scratch.bytes.data()), kLargeWorkspace, 0xab);
  multiply(on_gpu, scratch.bytes.first(kSmall), how, a, b, c);
  const HostTensor behind(TensorType{DType::kU8, {kLargeWorkspace - kSmall}});
  on_gpu.move(address(behind.view().data), address(scratch.bytes.data() + kSmall), kLargeWorkspace - kSmall);
  on_gpu.synchronize();
  const std::span<const uint8_t> bytes(behind.view().as<uint8_t>());
  EXPECT_EQ(std::ranges::count(bytes, 0xab), kLargeWorkspace - kSmall);
}

TEST(Cuda, a_chain_reads_what_is_broadcast_by_its_coordinates_and_scalars_once) {
  const TensorType row{DType::kF32, {6}}, all{DType::kBF16, {4, 6}}, one{DType::kF32, {}};
  const Chain chain{.shape = {4, 6},
                    .values = {all, row, one, {DType::kF32, {4, 6}}, all},
                    .operands = 3,
                    .steps = {{"y0 = x0 + x1;", {0, 1}, {3}}, {"y0 = x0 * x1;", {3, 2}, {4}}},
                    .results = {4}};
  const std::string source = source_of(chain);
  EXPECT_THAT(source, HasSubstr("chain(i64 n, const bf16* p0, const float* p1, const float* p2, bf16* q0) {\n"
                                "    const float v2 = load(p2[0]);\n"));
  EXPECT_THAT(source, HasSubstr("const float v0 = load(p0[at]);\n    const float v1 = load(p1[0 + (i64)i1 * 1]);"));
  EXPECT_THAT(source, HasSubstr("v4 = load(As<bf16>::of(y0));"));
  EXPECT_THAT(source, HasSubstr("q0[at] = As<bf16>::of(v4);"));
}

// One for all shapes of operands that are read in order.
TEST(Cuda, a_chain_is_compiled_once_for_all_shapes_without_broadcasts) {
  const auto source = [](std::initializer_list<int64_t> shape) {
    const TensorType type{DType::kF32, Shape(shape)};
    return source_of({.shape = type.shape,
                      .values = {type, type},
                      .operands = 1,
                      .steps = {{"y0 = -x0;", {0}, {1}}},
                      .results = {1}});
  };
  EXPECT_EQ(source({4, 6}), source({3}));
}

TEST(Cuda, what_is_written_in_cuda_compiles) {
  if (!has_compiler()) GTEST_SKIP() << "this host does not have CUDA's compiler (libnvrtc)";
  for (const DType dtype : {DType::kBF16, DType::kF64}) {
    const std::string name(to_string(dtype));
    EXPECT_NE(compiled(row_source(dtype), "rows of " + name, "90"), "");
    EXPECT_NE(compiled(reduction_source(dtype), "reductions of " + name, "90"), "");
    EXPECT_NE(compiled(table_source(dtype), "tables of " + name, "90"), "");
    EXPECT_NE(compiled(score_source(dtype), "scores of " + name, "90"), "");
  }
  EXPECT_NE(compiled(move_source(), "movement", "90"), "");
  EXPECT_NE(compiled(attention_source(DType::kBF16, 8), "attention", "90"), "");
}

// Every op on elements, all in one source, or it would take a minute.
TEST(Cuda, ops_on_elements_compile_for_the_types_of_their_examples) {
  if (!has_compiler()) GTEST_SKIP() << "this host does not have CUDA's compiler (libnvrtc)";
  std::string all = prelude(DType::kF32) + element_functions();
  int chains = 0;
  for (const std::string_view name : ops_with_element_code()) {
    const OpDef& op = *find_op(name);
    std::set<std::vector<DType>> seen;
    for (const Example& example : op.examples()) {
      std::vector<DType> dtypes;
      for (const TensorType& type : example.in) dtypes.push_back(type.dtype);
      if (!seen.insert(dtypes).second) continue;
      const std::vector<TensorType> out = conformance::results_of(op, example);
      const auto code = element_code({name, {example.in, out, example.attrs}});
      if (!code) continue;
      Chain chain{
          .shape = out[0].shape, .values = example.in, .operands = example.in.size(), .steps = {{*code, {}, {}}}};
      ChainStep& step = chain.steps[0];
      step.reads_coordinates = reads_coordinates(name);
      for (size_t i = 0; i < example.in.size(); ++i) step.in.push_back(static_cast<int>(i));
      for (const TensorType& type : out) {
        step.out.push_back(static_cast<int>(chain.values.size()));
        chain.values.push_back(type);
      }
      chain.results = step.out;
      const std::string source = source_of(chain);
      std::string kernel = source.substr(source.find("typedef unsigned Index;") + 23);
      kernel.replace(kernel.find(" chain("), 7, fmt::format(" chain{}(", chains++));
      all += (chains == 1 ? "typedef unsigned Index;" : "") + kernel;
    }
  }
  EXPECT_GT(chains, 60);
  EXPECT_NE(compiled(all, "chains", "90"), "");
}

}  // namespace
}  // namespace trireme::cuda_test

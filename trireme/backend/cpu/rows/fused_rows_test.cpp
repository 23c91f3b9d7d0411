#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/backend/cpu/cases/row_cases_for_tests.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/base/error.h"
#include "trireme/base/thread_pool.h"
#include "trireme/op/conformance.h"
#include "trireme/op/registry.h"
#include "trireme/op/row_steps.h"

namespace trireme::fused_rows_test {
namespace {

const Kernel& kernel_named(const OpDef& op, std::string_view end) {
  for (const Kernel* kernel : kernels_of(op)) {
    if (kernel->name.ends_with(end)) return *kernel;
  }
  fail(ErrorKind::kInternal, "'{}' has no kernel {}", op.name, end);
}

std::vector<View> views_of(const std::vector<HostTensor>& tensors) {
  std::vector<View> views;
  for (const HostTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

void run(const Kernel& kernel, std::span<const View> in, std::span<const View> out, const Attrs& attrs,
         ThreadPool* pool = nullptr) {
  std::vector<TensorType> from, to;
  for (const View& view : in) from.push_back(view.type);
  for (const View& view : out) to.push_back(view.type);
  std::vector<std::byte> scratch(
      static_cast<size_t>(kernel.scratch_bytes({from, to, attrs}, pool == nullptr ? 1 : pool->size())));
  std::shared_ptr<void> state;
  kernel.run({in, out, {}, {}, attrs, scratch, pool, &state});
}

std::vector<HostTensor> results_of(const Kernel& kernel, const Example& example,
                                   const std::vector<HostTensor>& operands, ThreadPool* pool = nullptr) {
  std::vector<HostTensor> results;
  for (const TensorType& type : conformance::results_of(op("fused_rows"), example)) results.emplace_back(type);
  run(kernel, views_of(operands), views_of(results), example.attrs, pool);
  return results;
}

// Each step by itself, on whole tensors: products by their kernels of this name, or without one by the usual ones.
std::vector<HostTensor> one_by_one(std::string_view product, const Example& example,
                                   const std::vector<HostTensor>& operands) {
  const RowSteps steps = parse_row_steps(example.attrs.as<FusedRowsAttrs>());
  const std::vector<RowValue> values = row_values(steps, example.in);
  std::vector<HostTensor> made;
  std::vector<View> views = views_of(operands);
  for (size_t id = operands.size(); id < values.size(); ++id)
    views.push_back(made.emplace_back(values[id].type).view());
  for (const RowStep& step : steps.steps) {
    std::vector<View> in, out;
    std::vector<TensorType> from, to;
    for (const int id : step.in) in.push_back(views[static_cast<size_t>(id)]);
    for (const int id : step.out) out.push_back(views[static_cast<size_t>(id)]);
    for (const View& view : in) from.push_back(view.type);
    for (const View& view : out) to.push_back(view.type);
    const bool multiplies = is_product(step, values);
    const bool named = multiplies && !product.empty();
    const Kernel& kernel =
        named ? kernel_named(*step.op, product)
              : choose_kernel(*step.op, {from, to, step.attrs}, multiplies ? Numerics::kFast : Numerics::kInvariant);
    run(kernel, in, out, step.attrs);
  }
  std::vector<HostTensor> results;
  for (const int id : steps.results) results.push_back(made[static_cast<size_t>(id) - operands.size()].clone());
  return results;
}

bool has_product(const Example& example) {
  const RowSteps steps = parse_row_steps(example.attrs.as<FusedRowsAttrs>());
  const std::vector<RowValue> values = row_values(steps, example.in);
  return std::ranges::any_of(steps.steps, [&](const RowStep& step) { return is_product(step, values); });
}

class FusedProducts : public testing::TestWithParam<TestIsa> {
 protected:
  void TearDown() override { use_machine_isa(); }
};

TEST_P(FusedProducts, have_the_bits_that_each_step_has_by_itself) {
  if (!GetParam().is_there()) GTEST_SKIP() << "this machine has no " << GetParam().name();
  GetParam().use();
  std::vector<Example> cases = fused_rows_cases();
  // Summed in parts by the product alone.
  cases.push_back({.in = {f32_of({130, 2081}), f32_of({2081, 515}), f32_of({515})},
                   .attrs = Attrs::of(
                       FusedRowsAttrs{1, "3=matmul(0,1){transpose_a=false, transpose_b=false}; 4=add(3,2){}", {4}})});
  uint64_t seed = 1;
  for (const Example& example : cases) {
    if (!has_product(example)) continue;
    const std::vector<HostTensor> operands = conformance::operands_of(example, ++seed);
    for (const auto& [fused, alone] : {std::pair{".product.sgemm", ".sgemm"},
                                       {".product.blocks", ".blocks"},
                                       {".product.tiles", ".tiles"},
                                       {"fused_rows.blocks", ".leaves"}}) {
      const Kernel& kernel = kernel_named(op("fused_rows"), fused);
      const std::vector<TensorType> results = conformance::results_of(op("fused_rows"), example);
      if (kernel.why_not != nullptr && !kernel.why_not({example.in, results, example.attrs}).empty()) continue;
      const std::vector<HostTensor> got = results_of(kernel, example, operands);
      const std::vector<HostTensor> want = one_by_one(alone, example, operands);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(std::ranges::equal(got[i].view().raw(), want[i].view().raw()))
            << fused << ", result " << i << " of " << conformance::describe(op("fused_rows"), example);
      }
    }
  }
}

// More rows than a block has, and tails of rows, columns and terms; with 640 terms, sums of two parts.
std::vector<Example> bf16_cases() {
  const auto bf16_of = [](Shape shape) { return TensorType{DType::kBF16, shape}; };
  std::vector<Example> cases;
  const auto add = [&](std::vector<TensorType> in, int64_t row_dims, const char* steps, std::vector<int64_t> results) {
    cases.push_back({.in = std::move(in), .attrs = Attrs::of(FusedRowsAttrs{row_dims, steps, std::move(results)})});
  };
  add({bf16_of({300, 640}), bf16_of({640, 600}), bf16_of({600})}, 1,
      "3=matmul(0,1){transpose_a=false, transpose_b=false}; 4=add(3,2){}; 5=gelu(4){approximate=true}", {4, 5});
  add({bf16_of({141, 36}), bf16_of({1030, 36}), bf16_of({141, 1030})}, 1,
      "3=matmul(0,1){transpose_a=false, transpose_b=true}; 4=mul(3,2){}", {4});
  add({bf16_of({2, 131, 37}), bf16_of({37, 3, 40}), bf16_of({3, 40})}, 2,
      "3=multi_linear(0,1){}; 4=add(3,2){}; 5,6,7=split(4){dim=2, sizes=[1,1,1]}", {5, 6, 7});
  add({bf16_of({2, 131, 3, 20}), bf16_of({101, 3, 20}), bf16_of({2, 131, 101})}, 2,
      "3=scale(0){value=0.5}; 4=multi_linear_input_grad(3,1){}; 5=add(4,2){}", {4, 5});
  return cases;
}

TEST_P(FusedProducts, of_bf16_have_the_bits_that_each_step_has_by_itself) {
  if (!GetParam().is_there()) GTEST_SKIP() << "this machine has no " << GetParam().name();
  GetParam().use();
  const OpDef& fused = op("fused_rows");
  ThreadPool pool(3);
  uint64_t seed = 1;
  for (const Example& example : bf16_cases()) {
    const std::vector<HostTensor> operands = conformance::operands_of(example, ++seed);
    const std::vector<HostTensor> want = one_by_one("", example, operands);
    std::vector<TensorType> out;
    for (const HostTensor& result : want) out.push_back(result.type());
    const Kernel& chosen = choose_kernel(fused, {example.in, out, example.attrs});
    EXPECT_EQ(chosen.name, GetParam().isa == Isa::kAmx ? "fused_rows.product.bf16_tiles" : "fused_rows.product.sgemm");
    for (ThreadPool* const threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      const std::vector<HostTensor> got = results_of(chosen, example, operands, threads);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(std::ranges::equal(got[i].view().raw(), want[i].view().raw()))
            << "result " << i << " of " << conformance::describe(fused, example) << " on "
            << (threads == nullptr ? 1 : threads->size()) << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, FusedProducts, testing::ValuesIn(all_test_isas()),
                         [](const auto& each) { return std::string(each.param.name()); });

TEST(FusedRows, a_product_goes_by_what_measuring_found_for_it_alone) {
  const Example example = fused_rows_cases().front();
  const std::vector<TensorType> in{f32_of({2048, 256}), f32_of({256, 256}), f32_of({256})};
  const std::vector<TensorType> out{f32_of({2048, 256}), f32_of({2048, 256})};
  const TypeArgs types{in, out, example.attrs};
  const OpDef& fused = op("fused_rows");

  EXPECT_EQ(choose_kernel(fused, types).name, "fused_rows.product.sgemm");
  EXPECT_EQ(choose_kernel(fused, types, Tuning{"", {{"f32:2048x256x256:nn", "blocks"}}}).name,
            "fused_rows.product.blocks");
  EXPECT_EQ(choose_kernel(fused, types, Tuning{"", {{"f32:2048x256x256:nn", "tiles"}}}).name,
            machine_isa() >= Isa::kAmx ? "fused_rows.product.tiles" : "fused_rows.product.sgemm");
  EXPECT_EQ(choose_kernel(fused, types, Tuning{"", {{"f32:2048x256x256:nt", "blocks"}}}).name,
            "fused_rows.product.sgemm");
  EXPECT_EQ(choose_kernel(fused, types, Numerics::kInvariant).name, "fused_rows.blocks");
}

TEST(FusedRows, a_matrix_of_bf16_that_leaves_the_cache_is_multiplied_with_all_rows_first) {
  TestIsa{Isa::kAmx, true}.use();
  const auto name_for = [](int64_t k) {
    const std::vector<TensorType> in{{DType::kBF16, {64, k}}, {DType::kBF16, {k, 1024}}};
    const std::vector<TensorType> out{{DType::kBF16, {64, 1024}}};
    const Attrs attrs = Attrs::of(
        FusedRowsAttrs{1, "2=matmul(0,1){transpose_a=false, transpose_b=false}; 3=gelu(2){approximate=true}", {3}});
    return std::string(choose_kernel(op("fused_rows"), {in, out, attrs}).name);
  };
  EXPECT_EQ(name_for(512), "fused_rows.product.bf16_tiles");
  EXPECT_EQ(name_for(544), "fused_rows.product.sgemm");
  use_machine_isa();
}

TEST(FusedRows, the_choice_may_be_made_by_types_that_the_steps_attributes_are_not_of) {
  const std::vector<TensorType> in{f32_of({48, 4})};
  const std::vector<TensorType> out{f32_of({48, 2})};
  const Attrs attrs = Attrs::of(FusedRowsAttrs{1, "1=slice(0){starts=[0,0], sizes=[16,2]}; 2=scale(1){value=2}", {2}});
  for (const Numerics numerics : {Numerics::kFast, Numerics::kInvariant})
    EXPECT_EQ(choose_kernel(op("fused_rows"), {in, out, attrs}, numerics).name, "fused_rows.blocks");
}

}  // namespace
}  // namespace trireme::fused_rows_test

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/backend/cpu/cases/row_cases_for_tests.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/base/error.h"
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

void run(const Kernel& kernel, std::span<const View> in, std::span<const View> out, const Attrs& attrs) {
  std::vector<TensorType> from, to;
  for (const View& view : in) from.push_back(view.type);
  for (const View& view : out) to.push_back(view.type);
  std::vector<std::byte> scratch(static_cast<size_t>(kernel.scratch_bytes({from, to, attrs}, 1)));
  std::shared_ptr<void> state;
  kernel.run({in, out, {}, {}, attrs, scratch, nullptr, &state});
}

std::vector<HostTensor> results_of(const Kernel& kernel, const Example& example,
                                   const std::vector<HostTensor>& operands) {
  std::vector<HostTensor> results;
  for (const TensorType& type : conformance::results_of(op("fused_rows"), example)) results.emplace_back(type);
  run(kernel, views_of(operands), views_of(results), example.attrs);
  return results;
}

// Each step by itself, on whole tensors: products by their kernels of this name.
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
    const Kernel& kernel = multiplies ? kernel_named(*step.op, product)
                                      : choose_kernel(*step.op, {from, to, step.attrs}, Numerics::kInvariant);
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
    for (const auto& [fused, alone] :
         {std::pair{".product.sgemm", ".sgemm"}, {".product.blocks", ".blocks"}, {"fused_rows.blocks", ".leaves"}}) {
      const std::vector<HostTensor> got = results_of(kernel_named(op("fused_rows"), fused), example, operands);
      const std::vector<HostTensor> want = one_by_one(alone, example, operands);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(std::ranges::equal(got[i].view().raw(), want[i].view().raw()))
            << fused << ", result " << i << " of " << conformance::describe(op("fused_rows"), example);
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
  EXPECT_EQ(choose_kernel(fused, types, Tuning{"", {{"f32:2048x256x256:nt", "blocks"}}}).name,
            "fused_rows.product.sgemm");
  EXPECT_EQ(choose_kernel(fused, types, Numerics::kInvariant).name, "fused_rows.blocks");
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

// The kernels that claim bits which do not depend on how tensors are cut (Bits): on the pieces of
// every cut that the claim covers, put together, they give the bits of the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/backend/cpu/cases/kernel_cases_for_tests.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/base/error.h"
#include "trireme/base/thread_pool.h"
#include "trireme/layout/interpret_reshard.h"
#include "trireme/op/conformance.h"
#include "trireme/op/registry.h"

namespace trireme::invariant_test {
namespace {

struct Call {
  const OpDef& op;
  const Kernel& kernel;
  const Example& example;
};

struct Cut {
  Mesh mesh;
  FactorCuts factors;
};

// One factor in 2 or 4 equal parts, as far as the kernel's claim goes.
std::vector<Cut> cuts_of(const ShardingRule& rule, const Kernel& kernel) {
  std::vector<Cut> out;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (!invariant_over(kernel.kept(), rule, static_cast<int>(f))) continue;
    for (const std::vector<MeshAxis>& axes : {std::vector<MeshAxis>{{"x", 2}}, {{"x", 2}, {"y", 2}}}) {
      Cut cut{Mesh(axes), {}};
      cut.factors.axes.resize(rule.factors.size());
      for (int axis = 0; axis < cut.mesh.axes(); ++axis) cut.factors.axes[f].push_back(axis);
      if (!is_uneven(rule, cut.factors, f, cut.mesh) && why_illegal(rule, cut.factors, cut.mesh).empty())
        out.push_back(std::move(cut));
    }
  }
  return out;
}

std::vector<Place> places_of(std::span<const HostTensor> whole, std::span<const Layout> layouts, const Mesh& mesh,
                             int64_t rank) {
  std::vector<Place> out;
  for (size_t i = 0; i < whole.size(); ++i) {
    out.push_back({whole[i].shape(), local_box(whole[i].shape(), layouts[i], mesh, rank).start});
  }
  return out;
}

std::vector<HostTensor> run(const Call& call, const std::vector<HostTensor>& operands,
                            const std::vector<TensorType>& types, std::span<const Place> in_places,
                            std::span<const Place> out_places, ThreadPool* pool) {
  std::vector<View> in, out;
  std::vector<TensorType> in_types;
  std::vector<HostTensor> results;
  for (const HostTensor& operand : operands) {
    in.push_back(operand.view());
    in_types.push_back(operand.type());
  }
  for (const TensorType& type : types) out.push_back(results.emplace_back(type).view());
  std::vector<std::byte> scratch(static_cast<size_t>(
      call.kernel.scratch_bytes({in_types, types, call.example.attrs}, pool == nullptr ? 1 : pool->size())));
  std::shared_ptr<void> state;
  call.kernel.run({in, out, in_places, out_places, call.example.attrs, scratch, pool, &state});
  return results;
}

// The sum of partial results in the tree over ranks.
std::vector<HostTensor> reduced(std::vector<HostTensor> pieces, Reduction reduction) {
  for (size_t apart = 1; apart < pieces.size(); apart *= 2) {
    for (size_t i = 0; i + apart < pieces.size(); i += 2 * apart)
      reduce_into(pieces[i].view(), pieces[i + apart].view(), reduction);
  }
  for (size_t i = 1; i < pieces.size(); ++i) pieces[i] = pieces[0].clone();
  return pieces;
}

std::string check_cut(const Call& call, const Cut& cut, const ShardingRule& rule,
                      const std::vector<HostTensor>& operands, const std::vector<HostTensor>& want) {
  const std::vector<Layout> in = operand_layouts(rule, cut.factors);
  std::vector<Layout> out = result_layouts(rule, cut.factors);
  std::vector<std::vector<HostTensor>> pieces;
  for (size_t i = 0; i < operands.size(); ++i) pieces.push_back(trireme::cut(operands[i], in[i], cut.mesh));
  std::vector<std::vector<HostTensor>> results(want.size());
  ThreadPool pool(3);
  for (int64_t rank = 0; rank < cut.mesh.devices(); ++rank) {
    std::vector<HostTensor> mine;
    for (const auto& all : pieces) mine.push_back(all[static_cast<size_t>(rank)].clone());
    std::vector<TensorType> types;
    for (size_t r = 0; r < want.size(); ++r) {
      types.push_back({want[r].type().dtype, local_box(want[r].shape(), out[r], cut.mesh, rank).size});
    }
    auto made =
        run(call, mine, types, places_of(operands, in, cut.mesh, rank), places_of(want, out, cut.mesh, rank), &pool);
    for (size_t r = 0; r < made.size(); ++r) results[r].push_back(std::move(made[r]));
  }
  for (size_t r = 0; r < want.size(); ++r) {
    if (out[r].is_partial()) {
      results[r] = reduced(std::move(results[r]), out[r].partial[0].reduction);
      out[r].partial.clear();
    }
    const HostTensor got = gather(results[r], out[r], cut.mesh, want[r].type());
    const View a = got.view(), b = want[r].view();
    if (a.bytes() > 0 && std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) != 0)
      return fmt::format("result {} has other bits", r);
  }
  return "";
}

// Sizes that 2 and 4 divide and 16 does not, and larger than tiles.
std::vector<Example> wide_cases(std::string_view op) {
  const auto f32 = [](Shape shape) { return TensorType{DType::kF32, std::move(shape)}; };
  if (op == "matmul") {
    std::vector<Example> cases;
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        cases.push_back({.in = {f32(ta ? Shape{100, 64} : Shape{64, 100}), f32(tb ? Shape{132, 100} : Shape{100, 132})},
                         .attrs = Attrs::of(MatMulAttrs{ta, tb})});
      }
    }
    cases.push_back({.in = {f32({4, 12, 40}), f32({4, 40, 36})}, .attrs = Attrs::of(MatMulAttrs{})});
    return cases;
  }
  if (op == "linear_weight_grad") {  // the first: several hundred terms, so in several parts, not at the ends of leaves
    return {{.in = {f32({20, 53, 36}), f32({20, 53, 40})}},
            {.in = {f32({20, 7, 36}), f32({20, 7, 68})}},
            {.in = {f32({1, 28, 36}), f32({1, 28, 68})}}};
  }
  if (op == "multi_linear") return {{.in = {f32({4, 9, 36}), f32({36, 3, 20})}}};
  if (op == "multi_linear_input_grad") return {{.in = {f32({4, 9, 3, 20}), f32({36, 3, 20})}}};
  if (op == "multi_linear_weight_grad") return {{.in = {f32({12, 9, 36}), f32({12, 9, 3, 20})}}};
  if (op == "reduce_sum") {
    return {{.in = {f32({20, 9, 36})}, .attrs = Attrs::of(ReduceAttrs{{0, 1}, false})},
            {.in = {f32({4, 100})}, .attrs = Attrs::of(ReduceAttrs{{1}, false})},
            {.in = {f32({12, 9, 4})}, .attrs = Attrs::of(ReduceAttrs{{0, 1}, false})},  // one column is left of four
            {.in = {f32({1, 36, 5})}, .attrs = Attrs::of(ReduceAttrs{{0, 1}, false})},
            {.in = {f32({28, 11})}, .attrs = Attrs::of(ReduceAttrs{{0, 1}, false})}};
  }
  if (op == "attention" || op == "attention_grad") {  // of bf16, which have kernels of their own
    std::vector<Example> cases;
    for (const Example& example : attention_cases(op == "attention_grad")) cases.push_back(*in_bf16(op, example));
    return cases;
  }
  if (op == "exact_square_sum") return {{.in = {f32({36, 100})}}};
  return {};
}

std::vector<Example> cases_of(const OpDef& op) {
  std::vector<Example> cases = op.examples == nullptr ? std::vector<Example>{} : op.examples();
  for (Example& more : more_cases(op.name)) cases.push_back(std::move(more));
  for (Example& more : wide_cases(op.name)) cases.push_back(std::move(more));
  return cases;
}

// Cuts checked; what is wrong goes to the test.
int check(const OpDef& op, const Example& example, uint64_t seed) {
  const std::vector<TensorType> types = conformance::results_of(op, example);
  const TypeArgs args{example.in, types, example.attrs};
  if (!op.shard) return 0;
  const ShardingRule rule = op.shard.get()(args);
  const Kernel& kernel = choose_kernel(op, args, Numerics::kInvariant);
  const Call call{op, kernel, example};
  const std::vector<HostTensor> operands = conformance::operands_of(example, seed);
  const std::vector<HostTensor> want = run(call, operands, types, {}, {}, nullptr);
  int checked = 0;
  for (const Cut& cut : cuts_of(rule, kernel)) {
    const std::string found = check_cut(call, cut, rule, operands, want);
    EXPECT_EQ(found, "") << kernel.name << " on " << conformance::describe(op, example) << " over "
                         << to_string(layout_of(rule.in.empty() ? rule.out[0] : rule.in[0], cut.factors), cut.mesh);
    ++checked;
  }
  return checked;
}

class EveryOpCut : public testing::TestWithParam<std::tuple<const OpDef*, TestIsa>> {
 protected:
  void TearDown() override { use_machine_isa(); }
};

TEST_P(EveryOpCut, HasTheSameBits) {
  const auto& [op, isa] = GetParam();
  if (!isa.is_there()) GTEST_SKIP() << "this machine has no " << isa.name();
  isa.use();
  uint64_t seed = 40;
  int checked = 0;
  for (const Example& example : cases_of(*op)) checked += check(*op, example, ++seed);
  RecordProperty("cuts", checked);
}

std::vector<const OpDef*> ops_with_kernels() {
  std::vector<const OpDef*> out;
  for (const OpDef* op : all_ops()) {
    if (!op->collective && op->kernel) out.push_back(op);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryOpCut,
                         testing::Combine(testing::ValuesIn(ops_with_kernels()),
                                          testing::Values(TestIsa{Isa::kAvx2}, TestIsa{Isa::kAvx512},
                                                          TestIsa{Isa::kAmx, true})),
                         [](const auto& each) {
                           return fmt::format("{}_{}", std::get<0>(each.param)->name, std::get<1>(each.param).name());
                         });

TEST(Invariant, ProductsHaveTheSameBitsOnEveryInstructionSet) {
  if (machine_isa() < Isa::kAvx2) GTEST_SKIP() << "this machine has no avx2";
  const Example example = wide_cases("matmul").front();
  const OpDef& matmul = op("matmul");
  const std::vector<TensorType> types = conformance::results_of(matmul, example);
  const Call call{matmul, choose_kernel(matmul, {example.in, types, example.attrs}, Numerics::kInvariant), example};
  const std::vector<HostTensor> operands = conformance::operands_of(example, 3);

  set_isa(Isa::kAvx2);
  const auto narrow = run(call, operands, types, {}, {}, nullptr);
  for (const TestIsa& isa : all_test_isas()) {
    if (!isa.is_there() || isa.isa < Isa::kAvx2) continue;
    isa.use();
    const auto wide = run(call, operands, types, {}, {}, nullptr);
    EXPECT_TRUE(std::ranges::equal(narrow[0].view().raw(), wide[0].view().raw())) << isa.name();
  }
  use_machine_isa();
}

}  // namespace
}  // namespace trireme::invariant_test

// The sum of squares of a list of rows has the bits of that of the table, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/base/thread_pool.h"
#include "trireme/op/conformance.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/registry.h"

namespace trireme::square_sum_rows_test {
namespace {

struct Case {
  int64_t table = 0, width = 0;
  std::vector<int64_t> numbers;  // in ascending order
  int64_t unused = 0;            // places at the list's end
};

float run(const OpDef& op, std::span<const View> in, const Attrs& attrs, ThreadPool* pool) {
  std::vector<TensorType> types;
  for (const View& view : in) types.push_back(view.type);
  const std::vector<TensorType> result{{DType::kF32, {}}};
  const TypeArgs args{types, result, attrs};
  const Kernel& kernel = choose_kernel(op, args, Numerics::kFast);
  EXPECT_TRUE(kernel.name.ends_with(".parts")) << kernel.name;
  const HostTensor out(result[0]), scratch({DType::kU8, {kernel.scratch_bytes(args, pool ? pool->size() : 1)}});
  const View to = out.view();
  std::shared_ptr<void> state;
  kernel.run({in, std::span(&to, 1), {}, {}, attrs, scratch.view().raw(), pool, &state});
  return out.as<float>()[0];
}

void expect_same_bits(const Case& of, DType dtype, ThreadPool* pool) {
  const auto places = static_cast<int64_t>(of.numbers.size()) + of.unused;
  const HostTensor table({dtype, {of.table, of.width}}), rows({dtype, {places, of.width}});
  const HostTensor numbers({DType::kI64, {places}});
  std::ranges::fill(numbers.as<int64_t>(), -1);
  std::ranges::copy(of.numbers, numbers.as<int64_t>().begin());
  const std::vector<HostTensor> operands = conformance::operands_of({.in = {rows.type()}}, 5);
  const HostTensor& drawn = operands[0];
  const int64_t bytes = of.width * size_of(dtype);
  for (size_t i = 0; i < of.numbers.size(); ++i) {
    const std::byte* const from = drawn.view().raw().data() + static_cast<int64_t>(i) * bytes;
    std::copy_n(from, bytes, rows.view().raw().data() + static_cast<int64_t>(i) * bytes);
    std::copy_n(from, bytes, table.view().raw().data() + of.numbers[i] * bytes);
  }
  const float whole = run(op("square_sum"), std::vector{table.view()}, Attrs(), pool);
  const float listed = run(op("square_sum_rows"), std::vector{numbers.view(), rows.view()},
                           Attrs::of(SquareSumRowsAttrs{of.table}), pool);
  EXPECT_EQ(std::bit_cast<uint32_t>(whole), std::bit_cast<uint32_t>(listed))
      << of.table << " rows of " << of.width << ", " << of.numbers.size() << " listed: " << whole << ", " << listed;
}

// Rows that share blocks and chunks, that lie over the borders of both, and the table's end, whatever rest it has.
std::vector<Case> cases() {
  std::vector<Case> out{{7, 3, {}, 4}, {1, 1, {0}, 0}, {5, 70'001, {0, 3, 4}, 0}};
  for (const int64_t width : {1, 12, 37, 64, 100, 613}) {
    for (const int64_t table : {251, 4096, 12'001}) {
      Case& each = out.emplace_back(Case{table, width, {}, 3});
      const int64_t stride = width < 37 ? 5 : 61;
      for (int64_t row = table % 7; row < table; row += 1 + row % stride) each.numbers.push_back(row);
      if (each.numbers.back() != table - 1 && width != 64) each.numbers.push_back(table - 1);
    }
  }
  return out;
}

class SquareSumRows : public testing::TestWithParam<TestIsa> {
 protected:
  void TearDown() override { use_machine_isa(); }
};

TEST_P(SquareSumRows, have_the_bits_of_the_table) {
  if (!GetParam().is_there()) GTEST_SKIP() << "this machine has no " << GetParam().name();
  GetParam().use();
  ThreadPool pool(3);
  for (const Case& each : cases()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (ThreadPool* const threads : {static_cast<ThreadPool*>(nullptr), &pool})
        expect_same_bits(each, dtype, threads);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SquareSumRows, testing::ValuesIn(all_test_isas()),
                         [](const auto& about) { return about.param.name(); });

}  // namespace
}  // namespace trireme::square_sum_rows_test

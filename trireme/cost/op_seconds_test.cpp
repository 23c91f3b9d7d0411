#include "trireme/cost/op_seconds.h"

#include <gtest/gtest.h>

#include "trireme/cost/price.h"
#include "trireme/op/move.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/registry.h"
#include "trireme/op/structural.h"

namespace trireme::op_seconds_test {
namespace {

using Step = ReshardStep::Kind;

const Mesh kMesh = parse_mesh("tp=8");
constexpr int64_t kMicrosecond = 1'000'000;
constexpr int64_t kByte = 1'000;  // over a link or to memory, in picoseconds

// Starting a collective takes 10 us, a message 1 us and 1 ns a byte; memory gives a byte a nanosecond; kernels reach
// half of 1e12 operations a second.
CostModel model() {
  Machine machine = Machine::this_host();
  machine.name = "even";
  machine.flops_per_s = {{"f32", 1e12}};
  machine.achievable = 0.5;
  machine.memory_bytes_per_s = 1e9;
  return {kMesh, {.links = {.link = {1e-6, 1e9}, .step_s = 1e-5}, .machine = machine}};
}

int64_t price(const OpDef& op, const std::vector<TensorType>& in, const std::vector<TensorType>& out,
              const Attrs& attrs = {}) {
  return model().op_ps(op, {in, out, attrs});
}

int64_t collective(const OpDef& op, const TensorType& in, const TensorType& out) {
  CollectiveAttrs attrs;
  attrs.axes = {0, 1, 2};
  attrs.size = 8;
  return price(op, {in}, {out}, Attrs::of(attrs));
}

// 16 x 16 x 16: 8192 operations at 1e12 a second, and 3 KiB at 1e9 bytes a second, which take longer.
TEST(OpSeconds, the_first_rate_that_names_an_op_counts_and_others_go_by_the_whole_machine) {
  Machine machine = Machine::this_host();
  machine.flops_per_s = {{"f32", 1e12}};
  machine.memory_bytes_per_s = 1e9;
  machine.op_rates = {{"mat*", 0.5, 1e-6}, {"matmul", 2, 0}};
  const OpDef& op = *find_op("matmul");
  const TensorType type{DType::kF32, {16, 16}};
  const std::vector<TensorType> in{type, type}, out{type};
  const Attrs attrs = op.parse_attrs("{}");
  const double bytes_s = 3.0 * 16 * 16 * 4 / 1e9;
  EXPECT_DOUBLE_EQ(compute_seconds(op, {in, out, attrs}, machine), 1e-6 + bytes_s / 0.5);
  machine.op_rates.erase(machine.op_rates.begin());
  EXPECT_DOUBLE_EQ(compute_seconds(op, {in, out, attrs}, machine), bytes_s / 2);
  machine.op_rates[0].memory = 1.5;  // after the arithmetic
  const double flops_s = 2.0 * 16 * 16 * 16 / 1e12;
  EXPECT_DOUBLE_EQ(compute_seconds(op, {in, out, attrs}, machine), flops_s / 2 + 1.5 * bytes_s);
  machine.op_rates = {{"add", 0.1, 1}};
  EXPECT_DOUBLE_EQ(compute_seconds(op, {in, out, attrs}, machine), bytes_s);
}

// Rates of ops are the device's; what the host has not named is the device's, too.
TEST(OpSeconds, ops_on_the_host_go_by_its_rates_where_the_machine_names_any) {
  Machine machine = Machine::this_host();
  machine.flops_per_s = {{"f32", 1e12}};
  machine.memory_bytes_per_s = 1e12;
  machine.op_rates = {{"matmul", 0.5, 1}};
  const OpDef& op = *find_op("matmul");
  const TensorType type{DType::kF32, {16, 16}};
  const std::vector<TensorType> in{type, type}, out{type};
  const TypeArgs types{in, out, op.parse_attrs("{}")};
  EXPECT_DOUBLE_EQ(compute_seconds_on_host(op, types, machine), compute_seconds(op, types, machine));
  machine.host_memory_bytes_per_s = 1e9;
  EXPECT_DOUBLE_EQ(compute_seconds_on_host(op, types, machine), 3.0 * 16 * 16 * 4 / 1e9);
  machine.host_memory_bytes_per_s = 0;
  machine.host_flops_per_s = 1e9;
  EXPECT_DOUBLE_EQ(compute_seconds_on_host(op, types, machine), 2.0 * 16 * 16 * 16 / 1e9);
}

// 4 units compute tiles of 256 x 128: 1024 x 1024 has 32 of them, 8 full rounds; 1280 x 1024 has 40, 10 rounds; 1024 x
// 1152 has 36, 9 rounds; 1024 x 1032 takes as many tiles as 1024 x 1152.
TEST(OpSeconds, results_in_tiles_take_whole_rounds_of_the_devices_units) {
  Machine machine = Machine::this_host();
  machine.flops_per_s = {{"f32", 1e12}};
  machine.memory_bytes_per_s = 1e30;
  machine.units = 4;
  machine.op_rates = {{"matmul", 1, 0, 256, 128}};
  const OpDef& op = *find_op("matmul");
  const Attrs attrs = op.parse_attrs("{}");
  const auto seconds = [&](int64_t rows, int64_t columns) {
    const std::vector<TensorType> in{{DType::kF32, {rows, 512}}, {DType::kF32, {512, columns}}};
    const std::vector<TensorType> out{{DType::kF32, {rows, columns}}};
    return compute_seconds(op, {in, out, attrs}, machine);
  };
  const double tile_s = 2.0 * 512 * 256 * 128 / 1e12 * 4;  // with all four units' rate
  EXPECT_DOUBLE_EQ(seconds(1024, 1024), 8 * tile_s);
  EXPECT_DOUBLE_EQ(seconds(1280, 1024), 10 * tile_s);
  EXPECT_DOUBLE_EQ(seconds(1024, 1152), 9 * tile_s);
  EXPECT_DOUBLE_EQ(seconds(1024, 1032), 9 * tile_s);
  EXPECT_DOUBLE_EQ(seconds(1152, 1024), 9 * tile_s);  // 128 x 256
  EXPECT_DOUBLE_EQ(seconds(256, 128), tile_s / 4);    // in tiles of 64 x 128: one for each unit
  EXPECT_DOUBLE_EQ(seconds(64, 64), tile_s / 4 / 8);  // along the sum
  EXPECT_DOUBLE_EQ(seconds(64, 16), tile_s / 4 / 8);  // of a tile of 64 x 64
  machine.units = 5;
  EXPECT_DOUBLE_EQ(seconds(1024, 1024), 7 * tile_s * 5 / 4);  // 32 in rounds of 5
  machine.memory_bytes_per_s = 1e12;
  EXPECT_DOUBLE_EQ(seconds(1024, 1024), 7 * tile_s * 5 / 4 + 1024 * 1024 * 4 / 1e12);  // written afterwards
}

TEST(Price, of_an_op_is_the_longer_of_arithmetic_and_bytes) {
  const TensorType square{DType::kF32, {64, 64}};
  const TensorType large{DType::kF32, {8192, 8192}};

  EXPECT_EQ(price(op("add"), {square, square}, {square}), 3 * 64 * 64 * 4 * kByte);
  EXPECT_EQ(price(op("matmul"), {large, large}, {large}, Attrs::of(MatMulAttrs{})), int64_t{4} * 8192 * 8192 * 8192);
  EXPECT_EQ(price(structural().reshape, {square}, {{DType::kF32, {4096}}}), 0);
}

TEST(Price, of_a_move_is_by_the_hosts_link_each_way_or_the_memory_or_the_slower_disk) {
  Machine machine = Machine::this_host();
  machine.memory_bytes_per_s = 1e9;
  machine.disk_bytes_per_s = 1e8;
  const TensorType type{DType::kF32, {1000}};
  const auto price_of = [&](Tier from, Tier to) {
    const CostModel model(kMesh, {.links = {}, .machine = machine});
    return model.op_ps(structural().move, {{&type, 1}, {&type, 1}, attrs_of({from, to})});
  };
  EXPECT_EQ(price_of(Tier::kDevice, Tier::kHost), 2 * 4000 * kByte);
  EXPECT_EQ(price_of(Tier::kDisk, Tier::kDevice), 10 * 4000 * kByte);
  machine.to_host_bytes_per_s = 2e9;
  machine.from_host_bytes_per_s = 5e8;
  machine.disk_bytes_per_s = 1e9;
  EXPECT_EQ(price_of(Tier::kDevice, Tier::kHost), 4000 * kByte / 2);
  EXPECT_EQ(price_of(Tier::kHost, Tier::kDevice), 2 * 4000 * kByte);
  EXPECT_EQ(price_of(Tier::kDevice, Tier::kDisk), 4000 * kByte);
  EXPECT_EQ(price_of(Tier::kDisk, Tier::kDevice), 2 * 4000 * kByte);
}

TEST(Price, of_a_collective_is_by_what_a_rank_sends_and_packs) {
  const TensorType piece{DType::kF32, {100}};
  const TensorType whole{DType::kF32, {800}};

  EXPECT_EQ(collective(structural().step(Step::kAllReduce), whole, whole), 16 * kMicrosecond + 2 * 2800 * kByte);
  EXPECT_EQ(collective(structural().step(Step::kAllGather), piece, whole), 13 * kMicrosecond + 2800 * kByte);
  EXPECT_EQ(collective(structural().step(Step::kReduceScatter), whole, piece), 13 * kMicrosecond + 2800 * kByte);
  constexpr int64_t kPacked = 2 * (3200 + 3200) * kByte;  // what goes and what comes, written and read
  EXPECT_EQ(collective(structural().step(Step::kAllToAll), whole, whole), 13 * kMicrosecond + 2800 * kByte + kPacked);
  EXPECT_EQ(collective(op("ring_shift"), piece, piece), 11 * kMicrosecond + 400 * kByte);
  EXPECT_EQ(collective(op("broadcast"), piece, piece), 13 * kMicrosecond + 400 * kByte);
  EXPECT_LT(collective(structural().step(Step::kSlice), whole, piece), 2 * 800 * 4 * kByte);
}

// Windows of 2 positions more than the block on one side: the middle ranks send 2 rows of their block.
TEST(Price, of_an_exchange_is_by_what_the_rank_with_most_to_send_sends) {
  const WindowAttrs attrs{
      .axes = {0, 1, 2}, .size = 8, .dim = 0, .extent = 64, .offset = -2, .step = 8, .length = 10, .fill = 0};

  const int64_t ps =
      price(structural().take_windows, {{DType::kF32, {8, 100}}}, {{DType::kF32, {10, 100}}}, Attrs::of(attrs));

  EXPECT_EQ(ps, 11 * kMicrosecond + 2 * 100 * 4 * kByte);
}

}  // namespace
}  // namespace trireme::op_seconds_test

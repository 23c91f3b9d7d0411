// fuse_collectives of gathers and scatters, and ids (fuse_collectives_test.cpp has all-reduces).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/ops/ops.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::fuse_gathers_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Program fuse(const Program& program, const Fusion& fusion, const Rates& rates = {}) {
  return find_pass("fuse_collectives").run(program, {.fusion = fusion, .rates = rates});
}

// A program written by hand, of vectors in halves over "dp".
struct Sliced {
  Program program{Graph("sliced"), Mesh({{"dp", 2}}), {}, {}};
  Tensor x = input("x", 8, Role::kData);

  Tensor note(const Tensor& value, Layout layout, Shape whole) {
    program.layouts.push_back(std::move(layout));
    program.whole.push_back(std::move(whole));
    return value;
  }
  Tensor note(const Tensor& value) { return note(value, Layout::replicated(value.rank()), value.shape()); }
  Tensor input(const std::string& name, int64_t elements, Role role) {
    return note({program.graph, program.graph.add_input(name, {DType::kF32, {elements}}, role)});
  }
  Tensor weight(const std::string& name, int64_t elements = 8) {
    return note({program.graph, program.graph.add_input(name, {DType::kF32, {elements / 2}}, Role::kParameter)},
                parse_layout("[dp]", program.mesh), {elements});
  }
  Tensor gather(const Tensor& w) { return note(all_gather(w, {.axes = {0}, .size = 2})); }
  Tensor scatter(const Tensor& gradient) {
    return note(reduce_scatter(gradient, {.axes = {0}, .size = 2}), parse_layout("[dp]", program.mesh),
                gradient.shape());
  }
  void output(const std::string& name, const Tensor& value) { program.graph.add_output(name, value.id()); }
};

// What stands in the program, with the number of operands of collectives of several.
std::vector<std::string> ops(const Program& program) {
  EXPECT_THAT(verify(program), IsEmpty());
  std::vector<std::string> out;
  for (const Node& node : program.graph.nodes()) {
    const bool several = def_of(node).collective && node.inputs.size() > 1;
    out.push_back(several ? fmt::format("{} {}", node.op->name, node.inputs.size()) : std::string(node.op->name));
  }
  return out;
}

// y = x + w0 + w1 + ..., of weights of 32 bytes in halves.
Program chain(int weights, int times = 1) {
  Sliced s;
  std::vector<Tensor> w;
  for (int i = 0; i < weights; ++i) w.push_back(s.weight(fmt::format("w{}", i)));
  Tensor y = s.x;
  for (int i = 0; i < weights * times; ++i) y = s.note(add(y, s.gather(w[static_cast<size_t>(i % weights)])));
  s.output("y", y);
  return s.program;
}

TEST(FuseGathers, by_size_a_bucket_stands_where_its_first_member_stood) {
  const Program program = chain(3);
  EXPECT_THAT(ops(program), ElementsAre("all_gather", "add", "all_gather", "add", "all_gather", "add"));
  EXPECT_THAT(ops(fuse(program, {.all_gather = {.bytes = 64}})),
              ElementsAre("all_gather 2", "add", "add", "all_gather", "add"));
  EXPECT_THAT(ops(fuse(program, {.all_gather = {.bytes = 96}})), ElementsAre("all_gather 3", "add", "add", "add"));
  EXPECT_THAT(ops(fuse(program, {.all_gather = {.bytes = 63}})), ops(program));
}

TEST(FuseGathers, no_weight_is_in_a_bucket_twice) {
  EXPECT_THAT(ops(fuse(chain(2, 2), {.all_gather = {.bytes = 1 << 20}})),
              ElementsAre("all_gather 2", "add", "add", "all_gather 2", "add", "add"));
}

TEST(FuseGathers, the_bucket_moves_ahead_as_one) {
  const Program fused = fuse(chain(4), {.all_gather = {.bytes = 64}});
  EXPECT_THAT(ops(fused), ElementsAre("all_gather 2", "add", "add", "all_gather 2", "add", "add"));
  const Program early = find_pass("early_gathers").run(fused, {});
  EXPECT_THAT(ops(early), ElementsAre("all_gather 2", "all_gather 2", "add", "add", "add", "add"));
}

Rates links(double latency_s, double bytes_per_s, double memory_bytes_per_s) {
  return {.links = {.link = {latency_s, bytes_per_s}, .step_s = 0},
          .machine = Machine{.name = "m", .memory_bytes_per_s = memory_bytes_per_s, .flops_per_s = {{"f32", 1e9}}}};
}

TEST(FuseGathers, the_model_joins_where_starting_takes_long) {
  const Program program = chain(4);
  EXPECT_THAT(ops(fuse(program, {}, links(1, 1e9, 1e9))), ElementsAre("all_gather 4", "add", "add", "add", "add"));
  EXPECT_THAT(ops(fuse(program, {}, links(0, 1e9, 1e9))), ops(program));
}

// Gathers of what is made in the step are taken when the last of them is made.
TEST(FuseGathers, updated_weights_are_gathered_when_the_last_is_there) {
  Sliced s;
  for (const char* name : {"a", "b"}) {
    const Tensor w = s.weight(name);
    const Tensor made = s.note(scale(w, 2), parse_layout("[dp]", s.program.mesh), {8});
    s.output(name, s.gather(made));
  }
  EXPECT_THAT(ops(fuse(s.program, {.all_gather = {.bytes = 1 << 20}})), ElementsAre("scale", "scale", "all_gather 2"));
}

TEST(FuseGathers, gathers_that_need_each_other_stay_apart) {
  Sliced s;
  const Tensor once = s.gather(s.weight("w", 4));
  s.output("y", s.gather(s.note(exp(once), Layout::replicated(1), {4})));
  EXPECT_THAT(ops(fuse(s.program, {.all_gather = {.bytes = 1 << 20}})), ElementsAre("all_gather", "exp", "all_gather"));
}

Program scatters() {
  Sliced s;
  for (const char* name : {"a", "b", "c"}) {
    Tensor g = s.note(scale(s.input(name, 8, Role::kData), 2));
    Layout partial = s.program.layouts.back();
    partial.partial.push_back({0});
    s.program.layouts.back() = partial;
    s.output(name, s.scatter(g));
  }
  return s.program;
}

TEST(FuseScatters, by_size_or_not_at_all) {
  const Program program = scatters();
  EXPECT_THAT(ops(fuse(program, {.reduce_scatter = {.bytes = 64}})),
              ElementsAre("scale", "scale", "reduce_scatter 2", "scale", "reduce_scatter"));
  EXPECT_THAT(ops(fuse(program, {.reduce_scatter = {.mode = FusionOfKind::Mode::kOff}}, links(1, 1e9, 1e9))),
              ops(program));
  EXPECT_THAT(ops(fuse(program, {.is_on = false}, links(1, 1e9, 1e9))), ops(program));
  EXPECT_THAT(ops(fuse(program, {}, links(1, 1e9, 1e9))), ElementsAre("scale", "scale", "scale", "reduce_scatter 3"));
}

TEST(FusionIds, one_id_is_one_operation_and_0_is_never_taken_together) {
  Fusion fusion{.all_gather = {.bytes = 32}, .ids = {{.pattern = "", .id = 2}, {.pattern = "w1", .id = 0}}};
  EXPECT_THAT(ops(fuse(chain(4), fusion)), ElementsAre("all_gather 3", "add", "all_gather", "add", "add", "add"));
  fusion.all_gather = {.mode = FusionOfKind::Mode::kOff};
  EXPECT_THAT(ops(fuse(chain(4), fusion)), ops(chain(4)));
}

TEST(FusionIds, names_match_by_part_and_the_last_rule_counts) {
  const std::vector<FusionRule> rules{
      {"h.*", 2}, {"h.1..2", 3}, {"head", 0}, {.pattern = "wte", .id = 5, .inside = false}};
  EXPECT_EQ(fusion_id(rules, "h.0.attn.weight"), 2);
  EXPECT_EQ(fusion_id(rules, "h.2.attn.weight"), 3);
  EXPECT_EQ(fusion_id(rules, "head.bias"), 0);
  EXPECT_EQ(fusion_id(rules, "wte.weight"), 5);
  EXPECT_EQ(fusion_id(rules, "wte.inner.weight"), kNoFusionId);
  EXPECT_EQ(fusion_id(rules, "headless.weight"), kNoFusionId);
}

}  // namespace
}  // namespace trireme::fuse_gathers_test

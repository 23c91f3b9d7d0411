#include "trireme/layout/reshard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "trireme/base/error.h"
#include "trireme/layout/interpret_reshard.h"

namespace trireme::reshard_test {
namespace {

using Kind = ReshardStep::Kind;

std::string error_of(auto&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

// The chain as text, from texts.
std::string chain(const char* mesh_text, const char* from, const char* to, Shape shape = {24, 24},
                  const ReshardCosts& costs = {}) {
  const Mesh mesh = parse_mesh(mesh_text);
  const auto steps = plan_reshard(parse_layout(from, mesh), parse_layout(to, mesh), {DType::kF32, shape}, mesh, costs);
  return to_string(steps, mesh);
}

// Small latencies: bytes decide.
ReshardCosts by_bytes() {
  return {.link = {1e-9, 1e9}, .step_s = 1e-9};
}

int64_t total_bytes(const std::vector<ReshardStep>& steps, const TensorType& whole, const Mesh& mesh) {
  int64_t out = 0;
  for (const ReshardStep& step : steps) out += bytes_sent(step, whole, mesh);
  return out;
}

double total_seconds(const std::vector<ReshardStep>& steps, const TensorType& whole, const Mesh& mesh,
                     const ReshardCosts& costs) {
  double out = 0;
  for (const ReshardStep& step : steps) out += seconds(step, whole, mesh, costs);
  return out;
}

TEST(PlanReshard, equal_layouts_need_nothing) {
  EXPECT_EQ(chain("a=2", "[a, -]", "[a, -]"), "");
  EXPECT_EQ(chain("a=2,b=2", "[a, -] partial(sum: b)", "[a, -] partial(sum: b)"), "");
}

TEST(PlanReshard, primitive_conversions_of_four_devices_are_as_documented) {
  EXPECT_EQ(chain("a=2,b=2", "[-, -]", "[a, b]"), "slice(dim 0 over a); slice(dim 1 over b)");
  EXPECT_EQ(chain("a=2,b=2", "[a, b]", "[a, -]"), "all_gather(dim 1 over b)");
  EXPECT_EQ(chain("a=2,b=2", "[a, -]", "[a, b]"), "slice(dim 1 over b)");
  EXPECT_EQ(chain("a=2,b=2", "[a, -]", "[-, a]"), "all_to_all(dim 0 -> 1 over a)");
  EXPECT_EQ(chain("a=2,b=2", "[-, a]", "[a, -]"), "all_to_all(dim 1 -> 0 over a)");
  EXPECT_EQ(chain("a=2,b=2", "[-, -]", "[-, b]"), "slice(dim 1 over b)");
  EXPECT_EQ(chain("a=2,b=2", "[-, b]", "[-, -]"), "all_gather(dim 1 over b)");
  EXPECT_EQ(chain("a=2,b=2", "[a*b, -]", "[-, -]"), "all_gather(dim 0 over a*b)");
}

TEST(PlanReshard, row_and_column_cut_gathers_to_replicated_with_the_fewest_bytes) {
  const Mesh mesh({{"a", 2}, {"b", 2}});
  const TensorType type{DType::kF32, {24, 24}};
  const auto steps = plan_reshard(parse_layout("[a, b]", mesh), Layout::replicated(2), type, mesh, by_bytes());

  for (const ReshardStep& step : steps) EXPECT_EQ(step.kind, Kind::kAllGather);
  EXPECT_EQ(total_bytes(steps, type, mesh), type.bytes() * 3 / 4);
}

TEST(PlanReshard, table_of_the_one_idea_holds) {
  EXPECT_EQ(chain("a=4", "[-, -] partial(sum: a)", "[-, -]"), "all_reduce(sum over a)");
  EXPECT_EQ(chain("a=4", "[-, -] partial(sum: a)", "[-, a]"), "reduce_scatter(sum, dim 1 over a)");
  EXPECT_EQ(chain("a=4", "[-, -] partial(max: a)", "[a, -]"), "reduce_scatter(max, dim 0 over a)");
  EXPECT_EQ(chain("a=4", "[a, -]", "[-, a]"), "all_to_all(dim 0 -> 1 over a)");
}

TEST(PlanReshard, several_axes_make_one_collective) {
  EXPECT_EQ(chain("a=2,b=3", "[-, -] partial(sum: a*b)", "[-, -]"), "all_reduce(sum over a*b)");
  EXPECT_EQ(chain("a=2,b=3", "[-, -] partial(sum: a*b)", "[b*a, -]"), "reduce_scatter(sum, dim 0 over b*a)");
  EXPECT_EQ(chain("a=2,b=3", "[b*a, -]", "[-, -]"), "all_gather(dim 0 over b*a)");
  EXPECT_EQ(chain("a=2,b=3", "[-, a*b]", "[a*b, -]"), "all_to_all(dim 1 -> 0 over a*b)");
  EXPECT_EQ(chain("a=2,b=3,c=2", "[-, -]", "[a*b, c]"), "slice(dim 0 over a*b); slice(dim 1 over c)");
}

// contracts 5.5, cases 1 to 5.
TEST(PlanReshard, documented_cases_of_redistribution_hold) {
  EXPECT_EQ(chain("a=4", "[a, -]", "[-, -]"), "all_gather(dim 0 over a)");
  EXPECT_EQ(chain("a=4", "[a, -]", "[-, a]"), "all_to_all(dim 0 -> 1 over a)");
  EXPECT_EQ(chain("a=2,b=2", "[a, b]", "[a, b]"), "");
  EXPECT_EQ(chain("a=4,b=2", "[-, b]", "[a*b, -]", {8, 128}), "slice(dim 0 over a); all_to_all(dim 1 -> 0 over b)");
  EXPECT_EQ(chain("a=2,b=4", "[a, -] partial(sum: b)", "[a, -]", {64, 64}), "all_reduce(sum over b)");
  EXPECT_EQ(chain("a=2,b=4", "[a, -] partial(sum: b)", "[a, b]", {64, 64}), "reduce_scatter(sum, dim 1 over b)");
}

TEST(PlanReshard, without_all_to_all_fc_then_fc2_is_a_slice_and_an_all_gather) {
  ReshardCosts costs;
  costs.enable_all_to_all = false;

  EXPECT_EQ(chain("b=2,a=4", "[-, b]", "[b*a, -]", {8, 128}, costs), "all_gather(dim 1 over b); slice(dim 0 over b*a)");
  EXPECT_EQ(chain("a=4", "[a, -]", "[-, a]", {8, 128}, costs), "all_gather(dim 0 over a); slice(dim 1 over a)");
}

TEST(PlanReshard, swapping_the_order_of_axes_is_a_real_exchange) {
  const Mesh mesh({{"a", 2}, {"b", 2}});
  const TensorType type{DType::kF32, {8}};
  const auto steps = plan_reshard(parse_layout("[a*b]", mesh), parse_layout("[b*a]", mesh), type, mesh);

  EXPECT_GT(total_bytes(steps, type, mesh), 0);
}

TEST(PlanReshard, reduces_within_hosts_before_it_crosses_a_slow_link) {
  const Mesh mesh({{"host", 2}, {"core", 4}});
  ReshardCosts costs;
  costs.axes = {{1e-6, 1e8}, {1e-6, 1e10}, {1e-6, 1e10}};

  const auto steps = plan_reshard(parse_layout("[-] partial(sum: host*core)", mesh), parse_layout("[-]", mesh),
                                  {DType::kF32, {1 << 20}}, mesh, costs);
  EXPECT_EQ(to_string(steps, mesh),
            "reduce_scatter(sum, dim 0 over core); all_reduce(sum over host); "
            "all_gather(dim 0 over core)");
}

TEST(PlanReshard, a_target_that_only_cuts_more_sends_nothing_whatever_the_costs) {
  const Mesh mesh({{"a", 2}, {"b", 2}, {"c", 3}});
  ReshardCosts costs;
  costs.slice_s = 1;  // far above any collective
  const TensorType type{DType::kF32, {12, 12}};

  const auto steps = plan_reshard(parse_layout("[a, -]", mesh), parse_layout("[a*c, b]", mesh), type, mesh, costs);
  EXPECT_EQ(total_bytes(steps, type, mesh), 0);
  EXPECT_EQ(to_string(steps, mesh), "slice(dim 0 over c); slice(dim 1 over b)");
}

TEST(PlanReshard, errors_say_what_cannot_be_done) {
  EXPECT_EQ(error_of([] { chain("a=2", "[-, -]", "[-, -] partial(sum: a)"); }),
            "reshard of f32[24,24] from [-, -] to [-, -] partial(sum: a): the target is partial (sum) "
            "over 'a' and the source is not; a whole value cannot be taken apart, so let the target "
            "replicate or cut over 'a'");
  EXPECT_EQ(error_of([] { chain("a=2", "[-, -] partial(max: a)", "[-, -] partial(sum: a)"); }),
            "reshard of f32[24,24] from [-, -] partial(max: a) to [-, -] partial(sum: a): the target "
            "is partial (sum) over 'a' and the source is not; a whole value cannot be taken apart, so "
            "let the target replicate or cut over 'a'");
  EXPECT_EQ(error_of([] { chain("a=5", "[-, -]", "[-, a]"); }),
            "mesh axis 'a' has size 5, which does not divide dim 1 of 'f32[24,24]' (size 24). Use an "
            "axis of 1, 2, 3, 4, 6, 8, 12 or 24, or pad to 25.");
}

// A layout drawn at random whose cuts divide.
Layout draw_layout(std::mt19937_64& random, const Shape& whole, const Mesh& mesh) {
  Layout out = Layout::replicated(whole.rank());
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const auto place = random() % static_cast<uint64_t>(whole.rank() + 1);
    if (place == static_cast<uint64_t>(whole.rank())) continue;
    auto& dim = out.dims[place];
    if (whole[static_cast<int>(place)] % (mesh.size_of(dim) * mesh.axis(axis).size) != 0) continue;
    dim.insert(dim.begin() + static_cast<int64_t>(random() % (dim.size() + 1)), axis);
  }
  return out;
}

// Makes both ends partial over some axes that `from` does not use; `to` over a part of those.
void draw_partial(std::mt19937_64& random, const Mesh& mesh, Layout& from, Layout& to) {
  const auto reduction = static_cast<Reduction>(random() % 3);
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (from.uses(axis) || random() % 2 == 0) continue;
    from.add_partial(axis, reduction);
    if (!to.uses(axis) && random() % 3 == 0) to.add_partial(axis, reduction);
  }
}

HostTensor draw_tensor(std::mt19937_64& random, const TensorType& type) {
  HostTensor out(type);
  for (float& value : out.as<float>()) {
    value = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
  }
  return out;
}

struct Case {
  Mesh mesh;
  TensorType type;
  Layout from;
  Layout to;
};

Case draw_case(uint64_t seed) {
  static const char* const kMeshes[] = {"a=2",         "a=3",     "a=4",         "a=2,b=2", "a=6",     "a=3,b=2",
                                        "a=8",         "a=2,b=4", "a=2,b=2,c=2", "a=12",    "a=3,b=4", "a=2,b=3,c=2",
                                        "a=2,b=1,c=5", "a=11",    "a=2,b=2,c=3", ""};
  static constexpr int64_t kSizes[] = {1, 2, 4, 6, 8, 12, 24, 5, 10};
  std::mt19937_64 random(seed);
  Case out;
  out.mesh = parse_mesh(kMeshes[random() % std::size(kMeshes)]);
  out.type.dtype = DType::kF32;
  for (uint64_t rank = 1 + random() % 4; rank > 0; --rank) {
    out.type.shape.push_back(kSizes[random() % std::size(kSizes)]);
  }
  out.from = draw_layout(random, out.type.shape, out.mesh);
  out.to = draw_layout(random, out.type.shape, out.mesh);
  draw_partial(random, out.mesh, out.from, out.to);
  return out;
}

bool same(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = a[i].as<float>();
    const auto y = b[i].as<float>();
    if (a[i].type() != b[i].type() || !std::equal(x.begin(), x.end(), y.begin())) return false;
  }
  return true;
}

// Runs a planned chain on pieces and compares with a plain gather and cut.
void expect_chain_is_gather_and_cut(const Case& c, const ReshardCosts& costs, uint64_t seed) {
  std::mt19937_64 random(seed);
  const HostTensor whole = draw_tensor(random, c.type);
  const auto pieces = cut(whole, c.from, c.mesh, seed);

  const auto steps = plan_reshard(c.from, c.to, c.type, c.mesh, costs);
  const auto moved = apply(steps, pieces, c.from, c.type, c.mesh);

  const HostTensor back = gather(moved, c.to, c.mesh, c.type);
  const auto expected = whole.as<float>();
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), back.as<float>().begin())) << to_string(steps, c.mesh);
  if (!c.to.is_partial()) {
    EXPECT_TRUE(same(moved, cut(whole, c.to, c.mesh))) << to_string(steps, c.mesh);
  }
}

TEST(RandomReshard, of_any_pair_of_layouts_equals_a_plain_gather_and_cut) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Case c = draw_case(seed);
    SCOPED_TRACE(fmt::format("seed {}: mesh {} {} from {} to {}", seed, to_string(c.mesh), to_string(c.type),
                             to_string(c.from, c.mesh), to_string(c.to, c.mesh)));
    ReshardCosts costs;
    if (seed % 3 == 0) costs = by_bytes();
    if (seed % 3 == 1) {
      for (int axis = 0; axis < c.mesh.axes(); ++axis) {
        costs.axes.push_back({1e-7, axis % 2 == 0 ? 1e7 : 1e9});
      }
    }
    expect_chain_is_gather_and_cut(c, costs, seed);
    if (HasFailure()) return;
  }
}

TEST(RandomReshard, without_all_to_all_never_uses_it_and_is_as_right) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Case c = draw_case(seed);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    ReshardCosts costs = by_bytes();
    costs.enable_all_to_all = false;

    for (const auto& step : plan_reshard(c.from, c.to, c.type, c.mesh, costs)) {
      EXPECT_NE(step.kind, Kind::kAllToAll);
    }
    expect_chain_is_gather_and_cut(c, costs, seed);
    if (HasFailure()) return;
  }
}

TEST(RandomReshard, cut_short_by_its_limit_of_states_is_as_right) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    ReshardCosts costs;
    costs.max_states = 1;
    expect_chain_is_gather_and_cut(draw_case(seed), costs, seed);
    if (HasFailure()) return;
  }
}

TEST(RandomReshard, on_meshes_of_many_axes_is_right_and_no_dearer_than_a_plain_chain) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    Case c;
    c.mesh = parse_mesh(seed % 2 == 0 ? "a=8,b=8" : "a=4,b=2,c=2,d=2,e=2");
    c.type = {DType::kF32, {64, 16, 8}};
    c.from = draw_layout(random, c.type.shape, c.mesh);
    c.to = draw_layout(random, c.type.shape, c.mesh);
    draw_partial(random, c.mesh, c.from, c.to);
    ReshardCosts plain = by_bytes();
    plain.max_states = 0;

    expect_chain_is_gather_and_cut(c, by_bytes(), seed);
    const auto steps = plan_reshard(c.from, c.to, c.type, c.mesh, by_bytes());
    const auto dearer = plan_reshard(c.from, c.to, c.type, c.mesh, plain);
    EXPECT_LE(total_seconds(steps, c.type, c.mesh, by_bytes()),
              total_seconds(dearer, c.type, c.mesh, by_bytes()) * (1 + 1e-9));
    if (HasFailure()) return;
  }
}

TEST(BytesSent, follow_the_formulas) {
  const Mesh mesh({{"a", 4}});
  const TensorType type{DType::kF32, {16, 16}};  // 1024 bytes
  const auto bytes = [&](const char* from, const char* to) {
    const auto steps = plan_reshard(parse_layout(from, mesh), parse_layout(to, mesh), type, mesh);
    return steps.size() == 1 ? bytes_sent(steps[0], type, mesh) : -1;
  };

  EXPECT_EQ(bytes("[-, -]", "[a, -]"), 0);
  EXPECT_EQ(bytes("[a, -]", "[-, -]"), 768);
  EXPECT_EQ(bytes("[a, -]", "[-, a]"), 192);
  EXPECT_EQ(bytes("[-, -] partial(sum: a)", "[-, -]"), 1536);
  EXPECT_EQ(bytes("[-, -] partial(sum: a)", "[a, -]"), 768);
}

TEST(ReshardCosts, take_each_axis_at_the_level_its_ranks_must_cross) {
  Machine machine = Machine::this_host();
  machine.hosts = 4;
  machine.devices_per_host = 8;
  machine.levels = {{"host", 8, 1e-6, 1e11}, {"network", 32, 5e-6, 1e10}};

  const ReshardCosts costs = reshard_costs(machine, parse_mesh("dp=4,tp=8"));

  ASSERT_EQ(costs.axes.size(), 5u);
  EXPECT_EQ(costs.axes[0], (LinkCost{5e-6, 1e10}));
  EXPECT_EQ(costs.axes[1], (LinkCost{5e-6, 1e10}));
  EXPECT_EQ(costs.axes[2], (LinkCost{1e-6, 1e11}));
  EXPECT_EQ(costs.axes[4], (LinkCost{1e-6, 1e11}));
}

TEST(ReshardPlanner, remembers_chains_and_adds_up_their_figures) {
  ReshardPlanner planner(parse_mesh("a=4"));
  const Mesh& mesh = planner.mesh();
  const TensorType type{DType::kF32, {16, 16}};
  const Layout from = parse_layout("[a, -]", mesh);

  const Reshard& first = planner.plan(from, parse_layout("[-, -]", mesh), type);
  const Reshard& again = planner.plan(from, parse_layout("[-, -]", mesh), type);
  planner.plan(from, parse_layout("[-, -]", mesh), {DType::kF32, {32, 16}});

  EXPECT_EQ(&first, &again);
  EXPECT_EQ(planner.planned(), 2u);
  EXPECT_EQ(first.bytes_sent, 768);
  EXPECT_EQ(first.peak_bytes, 256 + 1024);
  EXPECT_DOUBLE_EQ(first.seconds, 1e-6 + 2 * 5e-6 + 768 / 5e9);
}

// Of the same sum over ranks and micro-batches: scattered for each micro-batch, with what scatters nothing once; or all
// once.
TEST(SumsOverMicroBatches, come_late_where_ranks_keep_slices_and_the_costs_say_so) {
  const Mesh mesh = parse_mesh("a=2,b=2,micro_batch=4");
  const TensorType type{DType::kF32, {16, 16}};
  const Layout from = parse_layout("[-, -] partial(sum: a*b*micro_batch)", mesh);
  const auto chain = [&](const char* to, bool late) {
    const ReshardCosts costs{.sum_micro_batches_late = late};
    return to_string(plan_reshard(from, parse_layout(to, mesh), type, mesh, costs), mesh);
  };
  const std::string added = "all_reduce(sum over micro_batch)";
  EXPECT_EQ(chain("[b, -]", true), "reduce_scatter(sum, dim 0 over b); " + added + "; all_reduce(sum over a)");
  EXPECT_EQ(chain("[a*b, -]", true), "reduce_scatter(sum, dim 0 over a*b); " + added);
  EXPECT_EQ(chain("[a*b, -]", false), added + "; reduce_scatter(sum, dim 0 over a*b)");
  EXPECT_EQ(chain("[-, -]", true), added + "; all_reduce(sum over a*b)");
}

// Each chunk of positions is summed as its terms are made; the sums are put together once.
TEST(SumsOverMicroBatches, come_before_what_is_gathered_of_them) {
  const Mesh mesh = parse_mesh("a=2,micro_batch=4,seq_chunk=2");
  const TensorType type{DType::kF32, {16, 16}};
  const Layout from = parse_layout("[seq_chunk, -] partial(sum: a*micro_batch)", mesh);
  const auto chain = [&](const char* to, const ReshardCosts& costs) {
    return to_string(plan_reshard(from, parse_layout(to, mesh), type, mesh, costs), mesh);
  };
  const std::string added = "all_reduce(sum over micro_batch)", together = "all_gather(dim 0 over seq_chunk)";
  EXPECT_EQ(chain("[-, -]", {}), added + "; " + together + "; all_reduce(sum over a)");
  EXPECT_EQ(chain("[a, -]", {.sum_micro_batches_late = true}),
            together + "; reduce_scatter(sum, dim 0 over a); " + added);
}

TEST(LayoutAfter, refuses_steps_that_would_permute_elements) {
  const Mesh mesh({{"a", 2}, {"b", 2}});
  const Layout layout = parse_layout("[a*b, -]", mesh);

  EXPECT_THROW(layout_after({.kind = Kind::kAllGather, .dim = 0, .axes = {0}}, layout), Error);
  EXPECT_THROW(layout_after({.kind = Kind::kSlice, .dim = 1, .axes = {0}}, layout), Error);
  EXPECT_THROW(layout_after({.kind = Kind::kAllReduce, .axes = {0}}, layout), Error);
}

}  // namespace
}  // namespace trireme::reshard_test

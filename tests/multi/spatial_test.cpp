// Images cut in tiles: convolution and pooling take what they need of their neighbours' positions, and a model trains
// as on one device (contracts 4.3 and 5.7).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tests/multi/loss_curve.h"
#include "trireme/exec/analysis/traffic.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/partition/partition.h"

namespace trireme::spatial_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

constexpr int64_t kImages = 4;

Graph lenet_step() {
  nn::LeNet lenet(10);
  return training_step([&](const Tensor& x) { return lenet(x); }, class_loss(),
                       {{"x", {DType::kF32, {kImages, 28, 28, 1}}}, {"y", {DType::kI32, {kImages}}}},
                       Sgd{.momentum = 0.9}, {.name = "lenet"});
}

struct Outcome {
  Curve curve;
  int64_t sent = 0;     // bytes of messages between two ranks in a step, as the transport counts them
  int64_t planned = 0;  // the same by the plan
};

Outcome run(const Graph& graph, const Parallel& parallel, comm::World* world) {
  Session session(graph, std::nullopt, {.world = world, .seed = 5, .compile = {.parallel = parallel}});
  session.initialise();
  Outcome out;
  note_start(session.step(), out.curve);
  const auto sent = [&] {
    for (const comm::World::Traffic& t : world ? world->traffic() : std::vector<comm::World::Traffic>{}) {
      if (t.kind == "send") return t.bytes;
    }
    return int64_t{0};
  };
  for (int64_t step = 1; step <= kSteps; ++step) {
    const int64_t before = sent();
    out.curve.losses.push_back(train_step(session, step, 0.02F));
    out.sent = sent() - before;
  }
  note_end(session.step(), out.curve);
  for (const PlanTraffic& t : traffic_per_step(session.plan(), world ? world->rank() : 0)) {
    if (t.op.ends_with("_windows")) out.planned += t.bytes;
  }
  return out;
}

std::vector<Outcome> run_on(int ranks, const Graph& graph, const Parallel& parallel) {
  std::vector<Outcome> out(static_cast<size_t>(ranks));
  std::mutex mutex;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    Outcome mine = run(graph, parallel, &world);
    const std::lock_guard lock(mutex);
    out[static_cast<size_t>(world.rank())] = std::move(mine);
  });
  return out;
}

// The sums of a weight's gradient run over the images' positions.
const double kShare = rounding_share(kImages * 28 * 28);

// Contracts 4.3.2 with tiles of both dimensions: two copies of 2x2 tiles.
TEST(Spatial, contracts_4_3_lenet_on_tiles_of_each_image_trains_as_on_one_rank) {
  const Graph graph = lenet_step();
  const Outcome whole = run(graph, {}, nullptr);
  EXPECT_EQ(let_pass(whole.curve, kShare), "");
  const std::vector<Outcome> tiled = run_on(8, graph, {.mesh = "dp=2,th=2,tw=2", .dataset = "[dp, th, tw, -]"});
  // The rows and columns a rank gives to its neighbour along h, and of what it then has along w. conv1 sees 2 positions
  // beyond its tile of 14x14 on the side of the neighbour; conv2's windows of 9 have 2 beyond the tile of 7x7, of 6
  // channels, and so have their gradients.
  constexpr int64_t kConv1 = 2 * 14 + 2 * (14 + 4);
  constexpr int64_t kConv2 = 6 * (2 * 7 + 2 * 9);
  constexpr int64_t kConv2Back = 6 * (2 * 9 + 2 * 7);
  for (const Outcome& rank : tiled) {
    EXPECT_EQ(difference_of(rank.curve, whole.curve, kShare), "");
    EXPECT_EQ(rank.sent, rank.planned);
    EXPECT_EQ(rank.sent, kImages / 2 * 4 * (kConv1 + kConv2 + kConv2Back));
  }
}

TEST(Spatial, a_rank_at_the_edge_sends_less_than_one_between_two) {
  Graph graph("rows");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {1, 12, 5, 2}}, Role::kData));
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {3, 3, 3, 2}}, Role::kParameter));
  graph.add_output("y", conv2d(x, w, {.padding = {1, 1}}).id());
  const Mesh mesh({{"th", 3}});
  const Program program = partition(graph, semi_auto(graph, 3, {.mesh = "th=3", .dataset = "[-, th, -, -]"}));
  EXPECT_THAT(verify(program), testing::IsEmpty());
  const ExecutionPlan plan = plan_execution(program);
  const auto sent = [&](int64_t rank) {
    for (const PlanTraffic& t : traffic_per_step(plan, rank)) {
      if (t.op == "take_windows") return t.bytes;
    }
    return int64_t{-1};
  };
  constexpr int64_t kRow = 5 * 2 * 4;
  EXPECT_EQ(sent(0), kRow);
  EXPECT_EQ(sent(1), 2 * kRow);
  EXPECT_EQ(sent(2), kRow);
  EXPECT_EQ(sent(kAnyRank), 2 * kRow);
}

// -- rules ------------------------------------------------------------------------------------------------

std::string error_of(const ConvOptions& options, int64_t height, int64_t kernel, const std::string& cuts) {
  Graph graph("conv");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {1, height, 8, 2}}, Role::kData));
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {3, kernel, 1, 2}}, Role::kParameter));
  graph.set_scope("conv");
  graph.add_output("y", conv2d(x, w, options).id());
  Parallel parallel{.dataset = "full_batch", .ops = {{"conv", cuts}}};
  try {
    semi_auto(graph, 4, parallel);
  } catch (const Error& e) {
    return e.text();
  }
  return "none";
}

// Contracts 5.7: the halo is within [0, slice].
TEST(Spatial, contracts_5_7_windows_that_reach_past_the_neighbours_slice_are_refused) {
  EXPECT_EQ(error_of({.padding = {2, 0}}, 8, 5, "{{1,4,1,1},{1,1,1,1}}"), "none");
  EXPECT_THAT(
      error_of({.padding = {3, 0}}, 8, 7, "{{1,4,1,1},{1,1,1,1}}"),
      testing::StartsWith(
          "cuts '{{1,4,1,1},{1,1,1,1}}' of conv2d of 'conv': operand 0, dimension 1: part 0 of 4 needs positions [0,5) "
          "and has a block of 2; it can only reach into the blocks next to it, [0,4); the op's rule is "
          "np~qi,o..i->npqo n=1 p=8 q=8 i=2 o=3"));
}

TEST(Spatial, contracts_5_7_parts_that_do_not_divide_the_output_are_refused) {
  EXPECT_THAT(error_of({}, 8, 3, "{{1,4,1,1},{1,1,1,1}}"), HasSubstr("dimension 1 of operand 0 cannot be cut"));
}

TEST(Spatial, means_that_leave_padding_out_are_not_cut_where_there_is_some) {
  Graph graph("pool");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {1, 8, 8, 2}}, Role::kData));
  avg_pool2d(x, {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}, .count_padding = false});
  EXPECT_EQ(to_string(*rule_of(graph, graph.nodes()[0])), "n.q~c->n.qc n=1 q=4 c=2");
}

}  // namespace
}  // namespace trireme::spatial_test

// Dimensions that the ranks do not divide fall in uneven parts, where the op's rule lets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>

#include "tests/multi/small_graphs.h"
#include "tests/multi/training_support.h"
#include "trireme/base/error.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/comm/comm.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/tensor/host_tensor.h"
#include "trireme/train/checkpoints/checkpointing.h"

namespace trireme::uneven_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

// Of the 10 columns of the last layer each of 4 ranks has 3, and the last has 1; or 6 ranks share the 16 terms of its
// sums.
Parallel in_parts(int64_t ranks) {
  Parallel out;
  out.dataset = "full_batch";
  const std::string n = std::to_string(ranks);
  out.ops = {{"layers.1", "{{1," + n + "},{1," + n + "}}"}};
  if (ranks == 4) out.ops = {{"layers.1", "{{1,1},{4,1}}"}};
  return out;
}

// The parameters and state of a run, put together from what the ranks hold.
std::map<std::string, HostTensor> put_together(int ranks, const std::function<void(Session&, comm::World*)>& run) {
  std::map<std::string, HostTensor> out;
  std::mutex mutex;
  const Graph graph = mlp_step(AdamW{});
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    Session session(graph, std::nullopt,
                    {.world = &world, .seed = 3, .compile = {.parallel = ranks == 1 ? Parallel{} : in_parts(ranks)}});
    session.initialise();
    run(session, &world);
    const std::lock_guard lock(mutex);
    for (const PlanInput& input : session.persistent()) {
      const PlanValue& value = session.plan().values[static_cast<size_t>(input.value)];
      HostTensor& whole = out.try_emplace(input.name, TensorType{value.type.dtype, value.whole}).first->second;
      const Box box = session.step().input_box(input.name);
      copy_region(session.step().input(input.name), box, whole.view(), Box::whole(value.whole), held(box, value.whole));
    }
  });
  return out;
}

bool all_equal(const std::map<std::string, HostTensor>& a, const std::map<std::string, HostTensor>& b) {
  return a.size() == b.size() && std::ranges::all_of(a, [&](const auto& entry) {
           return std::ranges::equal(entry.second.view().raw(), b.at(entry.first).view().raw());
         });
}

TEST(Uneven, starting_values_are_those_of_one_rank) {
  const auto nothing = [](Session&, comm::World*) {};
  const auto one = put_together(1, nothing);
  EXPECT_TRUE(all_equal(put_together(4, nothing), one));
  EXPECT_TRUE(all_equal(put_together(6, nothing), one));
}

TEST(Uneven, a_checkpoint_is_read_in_other_uneven_parts_and_whole) {
  const std::string folder = testing::TempDir() + "uneven_checkpoint";
  std::filesystem::remove_all(folder);
  const auto saved = put_together(4, [&](Session& session, comm::World* world) {
    for (int step = 1; step <= 3; ++step) train_step(session, step, 0.05F);
    save_session(session, world, {.root = folder, .step = 3});
  });
  const auto load = [&](Session& session, comm::World*) { load_session(session, ckpt::Reader(folder)); };
  EXPECT_TRUE(all_equal(put_together(1, load), saved));
  EXPECT_TRUE(all_equal(put_together(6, load), saved));
  EXPECT_TRUE(all_equal(put_together(4, load), saved));
  std::filesystem::remove_all(folder);
}

TEST(Uneven, a_piece_has_the_size_of_the_longest_part_and_ends_in_zeros) {
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    Session session(mlp_step(AdamW{}), std::nullopt,
                    {.world = &world, .seed = 3, .compile = {.parallel = in_parts(4)}});
    session.initialise();
    for (int step = 1; step <= 3; ++step) train_step(session, step, 0.05F);
    const View piece = session.step().input("layers.1.bias");
    EXPECT_EQ(session.step().input_box("layers.1.bias").start[0], 3 * world.rank());
    ASSERT_EQ(piece.type.shape, (Shape{3}));
    if (world.rank() != 3) return;
    EXPECT_NE(piece.as<float>()[0], 0);
    EXPECT_EQ(piece.as<float>()[1], 0);
    EXPECT_EQ(piece.as<float>()[2], 0);
  });
}

// What a rank sends is what the longest part has: a matrix [7, 4] in 2 parts is gathered as 2 times 4 rows.
TEST(Uneven, sends_the_longest_part) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {6, 7});
  const Tensor w = parameter(graph, "fc.weight", {7, 4});
  graph.add_output("y", in_scope(graph, "fc", [&] { return matmul(x, w); }).id());
  Parallel parallel;
  parallel.dataset = "full_batch";
  parallel.parameters = {{"fc.weight", "[dp, -]"}};
  parallel.ops = {{"fc", "{{1,1},{1,1}}"}};
  const Program program = partition(graph, semi_auto(graph, 2, parallel));
  EXPECT_TRUE(verify(program).empty());
  std::vector<std::string> ops;
  for (const Node& node : program.graph.nodes()) ops.emplace_back(node.op->name);
  EXPECT_EQ(ops, (std::vector<std::string>{"all_gather", "slice", "matmul"}));
  EXPECT_EQ(program.graph.type(program.graph.node(0).outputs[0]).shape, (Shape{8, 4}));
}

// A norm along its cut dimension would count zeros; batches come in equal parts.
TEST(Uneven, what_would_count_zeros_is_refused) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {6, 7});
  graph.add_output("y", in_scope(graph, "n", [&] { return softmax(x); }).id());
  Parallel parallel;
  parallel.dataset = "full_batch";
  parallel.ops = {{"n", "{{1,2}}"}};
  EXPECT_THAT(error_of([&] { semi_auto(graph, 2, parallel); }), HasSubstr("cannot be cut"));
  parallel.ops = {};
  parallel.dataset = "{{1,2}}";
  EXPECT_THAT(error_of([&] { semi_auto(graph, 2, parallel); }),
              HasSubstr("which does not divide dim 1 of 'data input 'x'"));
}

}  // namespace
}  // namespace trireme::uneven_test

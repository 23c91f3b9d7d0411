#include "trireme/exec/analysis/step_bytes.h"

#include <gtest/gtest.h>

#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::step_bytes_test {
namespace {

constexpr double kFloat = 4;

// y = gelu(x w), its mean square as the loss, and a step down a made-up gradient that reads y.
StepBytes of_small_step(bool fused) {
  Graph graph("small");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 4}}, Role::kData));
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {4, 6}}, Role::kParameter));
  const Tensor product = matmul(x, w);
  const Tensor y = gelu(product);
  graph.add_output("loss", mean(square(y)).id());
  graph.set_phase(Phase::kBackward);
  const Tensor dw = linear_weight_grad(x, y);
  graph.set_phase(Phase::kUpdate);
  graph.add_output("w", sub(w, dw).id(), w.id());
  PassOptions passes;
  if (!fused) passes.disabled = {"fuse_rows"};
  const Program program = run_passes(partition(graph, data_parallel(graph, 1)), passes);
  return step_bytes(program, plan_execution(program));
}

TEST(StepBytes, least_is_inputs_and_results_once_and_what_is_kept_twice) {
  const double inputs = 8 * 4 + 4 * 6;
  const double results = 1 + 4 * 6;
  const double kept = 8 * 6;
  EXPECT_EQ(of_small_step(false).least, kFloat * (inputs + results + 2 * kept));
}

TEST(StepBytes, moved_is_what_each_op_reads_and_writes) {
  const double of_matmul = 8 * 4 + 4 * 6 + 8 * 6;
  const double of_gelu = 2 * 8 * 6, of_square = 2 * 8 * 6, of_mean = 8 * 6 + 1 + 1 + 1;  // a sum, then scaled
  const double of_gradient = 8 * 4 + 8 * 6 + 4 * 6, of_update = 3 * 4 * 6;
  EXPECT_EQ(of_small_step(false).moved, kFloat * (of_matmul + of_gelu + of_square + of_mean + of_gradient + of_update));
}

TEST(StepBytes, fusion_moves_less_and_leaves_the_least_as_it_is) {
  const StepBytes apart = of_small_step(false);
  const StepBytes fused = of_small_step(true);
  EXPECT_LT(fused.moved, apart.moved);
  EXPECT_EQ(fused.least, apart.least);
  EXPECT_LT(fused.least, fused.moved);
}

}  // namespace
}  // namespace trireme::step_bytes_test

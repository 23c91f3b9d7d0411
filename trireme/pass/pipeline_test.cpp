#include "trireme/pass/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/ops/ops.h"
#include "trireme/partition/partition.h"
#include "trireme/plan/parallel.h"

namespace trireme {
namespace {

using testing::HasSubstr;

// Two weight gradients of a batch cut over two ranks.
Program two_gradients() {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 4}}, Role::kData));
  const Tensor y(graph, graph.add_input("y", {DType::kF32, {8, 4}}, Role::kData));
  graph.add_output("a", linear_weight_grad(x, y).id());
  graph.add_output("b", linear_weight_grad(y, x).id());
  return partition(graph, data_parallel(graph, 2));
}

int all_reduces(const Program& program) {
  int out = 0;
  for (const Node& node : program.graph.nodes()) out += node.op->name == "all_reduce" ? 1 : 0;
  return out;
}

std::string error_of(const PassOptions& options) {
  try {
    run_passes(two_gradients(), options);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kNotFound);
    return e.what();
  }
  return "";
}

TEST(Pipeline, runs_all_passes_unless_told_otherwise) {
  EXPECT_EQ(all_reduces(two_gradients()), 2);
  EXPECT_EQ(all_reduces(run_passes(two_gradients())), 1);
}

TEST(Pipeline, a_disabled_pass_does_not_run) {
  EXPECT_EQ(all_reduces(run_passes(two_gradients(), {.disabled = {"fuse_all_reduce"}})), 2);
}

TEST(Pipeline, options_reach_the_pass) {
  EXPECT_EQ(all_reduces(run_passes(two_gradients(), {.all_reduce = {.bucket_bytes = 64}})), 2);
}

TEST(Pipeline, stops_after_the_pass_named) {
  EXPECT_EQ(all_reduces(run_passes(two_gradients(), {.stop_after = "fuse_all_reduce"})), 1);
}

TEST(Pipeline, a_name_that_is_no_pass_is_refused_with_the_likely_one) {
  EXPECT_THAT(error_of({.disabled = {"fuse_al_reduce"}}),
              HasSubstr("no pass named 'fuse_al_reduce'. Did you mean 'fuse_all_reduce'?"));
  EXPECT_THAT(error_of({.stop_after = "nonsense"}), HasSubstr("no pass named 'nonsense'."));
}

TEST(Pipeline, writes_the_program_after_each_pass_that_changed_it) {
  std::string root = std::filesystem::temp_directory_path() / "trireme-pass-XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  const Program fused = run_passes(two_gradients(), {.dump_dir = root});
  EXPECT_EQ(read_file(root + "/003_fuse_all_reduce.program"), to_string(fused));
  std::filesystem::remove(root + "/003_fuse_all_reduce.program");
  run_passes(fused, {.dump_dir = root});
  EXPECT_TRUE(std::filesystem::is_empty(root)) << "nothing changed";
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace trireme

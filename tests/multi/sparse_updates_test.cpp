// Updates of tables by the rows that the batch looks up alone: the bits of updates of all rows, beside all other
// parallelism, without a gradient of the table's size anywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/loss_curve.h"
#include "trireme/backend/device.h"
#include "trireme/exec/memory/memory_plan.h"
#include "trireme/nn/layers.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::sparse_updates_test {
namespace {

using namespace testing_support;

constexpr int64_t kRows = 12'000, kWidth = 12;

// A table that is looked up twice, by the batch's two fields, and a small head.
Graph table_step(const Optimizer& optimizer, StepOptions options = {}) {
  nn::Embedding table(kRows, kWidth, {"table", 0.5});
  nn::Linear head(kWidth, 10, {.name = "head"});
  const ModelFn model = [&](const nn::Fields& batch) -> nn::Fields {
    const Tensor x = table(batch.front().second);
    return {{nn::kPrediction, head(add(tanh(x), table(batch.back().second)))}};
  };
  options.name = "table";
  options.seed = 3;
  return training_step(model, class_loss(), gpt_batch(), optimizer, options);
}

Graph untied_step(const Optimizer& optimizer, double clip = 0) {
  return llama_step(optimizer, false, clip, 0, 1, 1200);
}

std::vector<Curve> curves(const Graph& graph, int ranks, const CompileOptions& how) {
  std::vector<Curve> out(static_cast<size_t>(ranks));
  const auto train = [&](comm::World* world, size_t rank) {
    Session session(graph, std::nullopt, {.world = world, .seed = 5, .compile = how});
    session.initialise();
    note_start(session.step(), out[rank]);
    for (int64_t step = 1; step <= kSteps; ++step) {
      out[rank].losses.push_back(train_step(session, step, 0.1F));
      if (world != nullptr) require_equal_bits(session, *world, step);
    }
    note_end(session.step(), out[rank]);
  };
  if (ranks == 1) {
    train(nullptr, 0);
  } else {
    comm::spawn_ranks(ranks, "threads", [&](comm::World& world) { train(&world, static_cast<size_t>(world.rank())); });
  }
  return out;
}

int64_t calls_of(const ExecutionPlan& plan, std::string_view op) {
  return std::ranges::count_if(plan.actions, [&](const Action& action) { return action.op->name == op; });
}

struct Way {
  std::string name;
  int ranks = 1;
  int64_t tp = 1, pp = 1, zero = 0, micro_batches = 1;
  bool is_sparse = true;
};
void PrintTo(const Way& of, std::ostream* out) {
  *out << of.name;
}

Parallel parallel_of(const Way& way) {
  JobConfig config;
  set_keys(config, {"model.kind=llama", "data.kind=synthetic"});
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = way.tp;
  config.parallel.pp = way.pp;
  config.parallel.zero.level = way.zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = way.micro_batches;
  return trireme::parallel_of(config, way.ranks);
}

class SparseUpdates : public testing::TestWithParam<Way> {};

TEST_P(SparseUpdates, change_no_bits) {
  const Way& way = GetParam();
  for (const bool is_clipped : {false, true}) {
    const Optimizer optimizer = is_clipped ? Optimizer(LazyAdam{.weight_decay = 0.01}) : Optimizer(Sgd{});
    for (const bool is_llama : {false, true}) {
      if (!is_llama && (way.tp > 1 || way.pp > 1)) continue;  // what is ready-made is of language models
      const double clip = is_clipped ? 0.05 : 0;
      const Graph graph = is_llama ? untied_step(optimizer, clip) : table_step(optimizer, {.clip_norm = clip});
      CompileOptions how{.parallel = parallel_of(way)};
      CompileOptions dense = how;
      dense.passes.disabled = {"sparse_updates"};
      const std::vector<Curve> usual = curves(graph, way.ranks, dense);
      EXPECT_EQ(other_bits(usual, curves(graph, way.ranks, how)), "");
      how.parallel.on_host.updates = true;
      EXPECT_EQ(other_bits(usual, curves(graph, way.ranks, how)), "") << "on the host";
      how.parallel.on_host.updates = false;
      how.parallel.on_host.rules = {parse_host_rule(is_llama ? "model.embed_tokens = host" : "table = host")};
      EXPECT_EQ(other_bits(usual, curves(graph, way.ranks, how)), "") << "with the table on the host";
    }
  }
}

TEST_P(SparseUpdates, are_of_few_rows) {
  const Way& way = GetParam();
  for (const double clip : {0.0, 0.5}) {
    const Graph graph = way.tp > 1 || way.pp > 1 ? untied_step(Sgd{}, clip) : table_step(Sgd{}, {.clip_norm = clip});
    const Compiled made = compile(graph, {.ranks = way.ranks, .parallel = parallel_of(way)});
    const ExecutionPlan& plan = *made.plans()[0];
    EXPECT_EQ(calls_of(plan, "put_rows"), way.is_sparse ? 1 : 0);
    EXPECT_EQ(calls_of(plan, "embedding_grad"), way.is_sparse ? 0 : way.micro_batches * 2);
    EXPECT_EQ(calls_of(plan, "square_sum_rows"), way.is_sparse && clip > 0 ? 1 : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Beside, SparseUpdates,
                         testing::Values(Way{"nothing"}, Way{"data", 2}, Way{"data_of_three", 3},
                                         Way{"data_of_four", 4}, Way{"micro_batches", 1, 1, 1, 0, 3},
                                         Way{"data_and_micro_batches", 2, 1, 1, 0, 4}, Way{"tensor", 2, 2},
                                         Way{"data_and_tensor", 4, 2}, Way{"stages", 2, 1, 2, 0, 2},
                                         Way{"slices", 2, 1, 1, 3, 1, false}),
                         [](const auto& about) { return about.param.name; });

// Norms are exact then, and do not miss rows of zeros; otherwise lists are added as the tables would be.
TEST(SparseUpdatesWithClipping, have_the_bits_of_one_rank_in_invariant_mode) {
  const Graph graph = table_step(LazyAdam{}, {.clip_norm = 0.05, .numerics = Numerics::kInvariant});
  CompileOptions how{.numerics = Numerics::kInvariant};
  CompileOptions dense = how;
  dense.passes.disabled = {"sparse_updates"};
  const std::vector<Curve> usual = curves(graph, 1, dense);
  EXPECT_EQ(other_bits(usual, curves(graph, 1, how)), "");
  for (const int ranks : {2, 4}) {
    how.parallel = parallel_of({"", ranks, 1, 1, 0, 2});
    EXPECT_EQ(calls_of(compile(graph, {.ranks = ranks, .parallel = how.parallel, .numerics = how.numerics}).plan(),
                       "put_rows"),
              3);
    const std::vector<Curve> made = curves(graph, ranks, how);
    EXPECT_EQ(other_bits(usual, std::span(made).first(1)), "") << ranks << " ranks";
  }
}

// An optimizer that changes every row needs the whole gradient.
TEST(SparseUpdates, are_left_out_where_all_rows_count) {
  for (const Graph& graph : {table_step(AdamW{}), table_step(Sgd{.momentum = 0.9}),
                             table_step(Sgd{.weight_decay = 0.01}), gpt_step(Sgd{}, false, 0, 1, 3000)}) {
    EXPECT_EQ(calls_of(compile(graph, {}).plan(), "put_rows"), 0);
  }
}

TEST(SparseUpdates, say_why_a_table_on_the_host_has_a_whole_gradient) {
  const auto remarks = [](const Graph& graph) {
    CompileOptions how;
    how.parallel.on_host.rules = {parse_host_rule("table = host")};
    return compile(graph, how).remarks;
  };
  EXPECT_THAT(remarks(table_step(Sgd{})), testing::IsEmpty());
  EXPECT_THAT(remarks(table_step(AdamW{})),
              testing::ElementsAre(testing::HasSubstr("'table.weight' is updated on the host by a gradient of all its "
                                                      "rows, not of those that are looked up: the optimizer changes")));
  EXPECT_THAT(remarks(table_step(Sgd{}, {.clip_norm = 1})), testing::IsEmpty());
}

int64_t largest_made(const ExecutionPlan& plan) {
  int64_t out = 0;
  for (const Buffer& buffer : plan.buffers) {
    const bool is_made = !is_persistent(buffer.holding) && buffer.holding != Holding::kScratch;
    if (is_made) out = std::max(out, buffer.bytes);
  }
  return out;
}

TEST(SparseUpdates, have_no_gradient_of_the_tables_size) {
  constexpr int64_t kTable = kRows * kWidth * 4;
  CompileOptions how;
  how.passes.disabled = {"sparse_updates"};
  const Compiled dense = compile(table_step(Sgd{}), how);
  const Compiled made = compile(table_step(Sgd{}), {});
  EXPECT_GE(largest_made(dense.plan()), kTable);
  EXPECT_LT(largest_made(made.plan()), kTable / 4);
  EXPECT_EQ(made.plan().arena().persistent, dense.plan().arena().persistent);
  EXPECT_LT(made.plan().arena().bytes, dense.plan().arena().bytes - kTable / 2);
}

// The table lies on the host and is updated there: of it, what is looked up alone comes to the device.
TEST(SparseUpdates, contracts_14_1_b_on_the_host_leave_the_table_there) {
  constexpr int64_t kTable = kRows * kWidth * 4;
  CompileOptions how;
  how.parallel.on_host.rules = {parse_host_rule("table = host")};
  const Compiled made = compile(table_step(Sgd{}), how);
  EXPECT_EQ(made.plan().arena(Tier::kHost).persistent, align_buffer(kTable));
  EXPECT_LT(made.plan().arena(Tier::kHost).bytes, kTable + kTable / 2);
  EXPECT_LT(made.plan().arena().bytes, kTable);
}

}  // namespace
}  // namespace trireme::sparse_updates_test

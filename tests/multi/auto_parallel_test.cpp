// Mode auto_parallel: what each search finds trains as one device does, in invariant mode to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/small_graphs.h"
#include "tests/multi/training_support.h"
#include "trireme/comm/comm.h"
#include "trireme/nn/models/deepseek.h"
#include "trireme/nn/models/resnet.h"
#include "trireme/planner/search.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::auto_parallel_test {
namespace {

using namespace testing_support;

constexpr int kSteps = 3;
constexpr int64_t kSamples = 32;

Graph step_of(const std::string& model, Numerics numerics) {
  const auto train = [&](const ModelFn& forward, const std::vector<BatchField>& batch) {
    return training_step(forward, class_loss(), batch, AdamW{.weight_decay = 0.1},
                         {.name = model, .seed = 3, .clip_norm = 0.5, .numerics = numerics});
  };
  const std::vector<BatchField> text = {{"x", {DType::kI32, {kSamples, 8}}}, {"y", {DType::kI32, {kSamples, 8}}}};
  if (model == "gpt" || model == "moe") {
    nn::Gpt gpt({.vocabulary = 20,
                 .context = 8,
                 .layers = model == "moe" ? 1 : 2,  // whose searches are long
                 .width = 16,
                 .heads = 4,
                 .dropout = 0.1,
                 .experts = model == "moe" ? 4 : 0});
    return train([&](const Tensor& x) { return gpt(x); }, text);
  }
  if (model == "llama") {
    nn::Llama llama(
        {.vocabulary = 20, .context = 8, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2, .hidden = 24});
    return train([&](const Tensor& x) { return llama(x); }, text);
  }
  if (model == "resnet") {
    nn::ResNet resnet({.blocks = {1, 1}, .width = 4, .classes = 10});
    return train([&](const Tensor& x) { return resnet(x); },
                 {{"x", {DType::kF32, {kSamples, 16, 16, 3}}}, {"y", {DType::kI32, {kSamples}}}});
  }
  if (model == "deepseek") {
    nn::DeepSeek deepseek({.vocabulary = 20,
                           .context = 8,
                           .layers = 2,
                           .width = 16,
                           .heads = 4,
                           .key_rank = 8,
                           .head_size = 4,
                           .rotary_size = 2,
                           .value_size = 4,
                           .hidden = 24,
                           .expert_hidden = 8,
                           .top_k = 3,
                           .routing = {.sigmoid = true, .expert_nodes = 4, .top_nodes = 2, .bias_rate = 0.01},
                           .expert_groups = kSamples});
    return train([&](const Tensor& x) { return deepseek(x); }, text);
  }
  nn::Mlp mlp({12, 16, 10});
  return train(mlp_model(mlp), mlp_batch(kSamples));
}

struct Trained {
  std::vector<float> losses, norms;
  bool searched = false, sends = false;
};

Trained train(const Graph& graph, const Parallel& parallel, Numerics numerics, comm::World* world,
              const PassOptions& passes = {}) {
  Session session(
      graph, std::nullopt,
      {.world = world, .seed = 5, .compile = {.parallel = parallel, .numerics = numerics, .passes = passes}});
  session.initialise();
  Trained out;
  for (int step = 1; step <= kSteps; ++step) {
    out.losses.push_back(train_step(session, step, 0.01F));
    out.norms.push_back(session.step().output("grad_norm").as<float>()[0]);
  }
  out.searched = !session.compiled().search.empty();
  for (const trireme::Action& action : session.plan().actions)
    out.sends = out.sends || is_communication(static_cast<const OpDef&>(*action.op));
  return out;
}

std::vector<Trained> train_on(int ranks, const Graph& graph, const Parallel& parallel, Numerics numerics,
                              const PassOptions& passes = {}) {
  std::vector<Trained> out(static_cast<size_t>(ranks));
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    out[static_cast<size_t>(world.rank())] = train(graph, parallel, numerics, &world, passes);
  });
  return out;
}

// Links so fast that cutting pays, whatever is cut.
Machine fast_links() {
  Machine machine = Machine::this_host();
  machine.hosts = 1;
  machine.devices_per_host = 8;
  machine.memory_bytes = int64_t{1} << 40;
  machine.levels = {{"host", 8, 1e-9, 1e12}};
  return machine;
}

struct SearchCase {
  std::string model;
  SearchOptions search;
};

class AutoParallel : public testing::TestWithParam<SearchCase> {};

TEST_P(AutoParallel, trains_to_the_bit_as_one_device) {
  const Graph graph = step_of(GetParam().model, Numerics::kInvariant);
  const Trained whole = train(graph, {}, Numerics::kInvariant, nullptr);
  for (const int ranks : {2, 4}) {
    for (const bool is_fast : {false, true}) {
      Parallel parallel{.search = GetParam().search};
      if (ranks == 4 && !goes_on_from_batch(GetParam().search)) parallel.mesh = "dp=2,tp=2";
      if (is_fast) parallel.communication.machine = fast_links();

      for (const Trained& rank : train_on(ranks, graph, parallel, Numerics::kInvariant)) {
        EXPECT_EQ(rank.losses, whole.losses) << ranks << " ranks";
        EXPECT_EQ(rank.norms, whole.norms) << ranks << " ranks";
        EXPECT_TRUE(rank.searched);
        EXPECT_TRUE(rank.sends || !is_fast || GetParam().model == "mlp") << "a small MLP is not worth a message";
      }
    }
  }
}

TEST_P(AutoParallel, trains_in_micro_batches_and_stages_to_the_bit_as_one_device) {
  if (GetParam().model == "resnet") GTEST_SKIP() << "sums of its statistics over micro-batches have other bits";
  const Graph graph = step_of(GetParam().model, Numerics::kInvariant);
  const Trained whole = train(graph, {}, Numerics::kInvariant, nullptr);
  for (const int64_t crews : {1, 2}) {
    Parallel parallel{.accumulation = 4, .optimizer = {.level = 1, .threshold_kb = 0}, .search = GetParam().search};
    // Experts that take tokens of the whole batch want all micro-batches at once.
    parallel.pipeline = {.crews = crews, .schedule = GetParam().model == "moe" ? "gpipe" : "1f1b"};
    parallel.communication.machine = fast_links();
    for (const Trained& rank : train_on(4, graph, parallel, Numerics::kInvariant)) {
      EXPECT_EQ(rank.losses, whole.losses) << crews << " stages";
      EXPECT_EQ(rank.norms, whole.norms) << crews << " stages";
      EXPECT_TRUE(rank.searched);
    }
  }
}

std::vector<SearchCase> search_cases() {
  std::vector<SearchCase> out;
  for (const char* model : {"mlp", "gpt", "moe", "llama", "resnet"}) {
    for (const auto& [name, kind] : kStrategySearches) out.push_back({model, {.kind = kind}});
    out.push_back({model, {.kind = SearchKind::kRecursiveProgramming, .cost = SearchCost::kCommunication}});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Models, AutoParallel, testing::ValuesIn(search_cases()), [](const auto& each) {
  std::string name = each.param.model + "_" + to_string(each.param.search);
  std::ranges::replace(name, ' ', '_');
  return name;
});

// Three choices of each token depend on each other in more ways than tables hold.
TEST(AutoParallelFallback, where_choices_are_too_many_sharding_propagation_takes_over) {
  const Graph graph = step_of("deepseek", Numerics::kInvariant);
  const Trained whole = train(graph, {}, Numerics::kInvariant, nullptr);
  const Parallel parallel{.search = {.kind = SearchKind::kRecursiveProgramming}};
  const Compiled compiled = compile(graph, {.ranks = 2, .parallel = parallel, .numerics = Numerics::kInvariant});
  EXPECT_THAT(compiled.search, testing::HasSubstr("auto_parallel by sharding_propagation"));
  EXPECT_THAT(compiled.search, testing::HasSubstr("note: too many choices for recursive_programming"));
  for (const Trained& rank : train_on(2, graph, parallel, Numerics::kInvariant)) {
    EXPECT_EQ(rank.losses, whole.losses);
    EXPECT_EQ(rank.norms, whole.norms);
  }
}

// Stages, slices of state, recomputed blocks and micro-batches are set by hand, the cuts are found.
TEST(AutoParallel, contracts_27_goes_together_with_stages_micro_batches_slices_and_recomputation) {
  JobConfig config;
  set_keys(config, {"model.kind=gpt", "model.heads=4", "parallel.mode=auto_parallel",
                    "parallel.search=recursive_programming", "parallel.pp=2", "parallel.gradient_accumulation_steps=4",
                    "parallel.zero=1", "parallel.zero_threshold_kb=0", "train.numerics=invariant"});
  Parallel parallel = parallel_of(config, 8);
  parallel.communication.machine = fast_links();
  const Graph graph = step_of("gpt", Numerics::kInvariant);
  const PassOptions again{.recompute = {.blocks = -1}};

  const Compiled made =
      compile(graph, {.ranks = 8, .parallel = parallel, .numerics = Numerics::kInvariant, .passes = again});
  EXPECT_THAT(made.search, testing::StartsWith("auto_parallel by recursive_programming over mesh 'dp=4,micro_batch=4'\n"
                                               "  all stages of a step, one after the other, are predicted to take "));
  for (const CompiledCrew& crew : made.crews)
    EXPECT_TRUE(std::ranges::any_of(crew.program.graph.nodes(), [](const Node& node) { return node.again; }));
  const Trained whole = train(graph, {}, Numerics::kInvariant, nullptr);
  for (const Trained& rank : train_on(8, graph, parallel, Numerics::kInvariant, again)) {
    EXPECT_EQ(rank.losses, whole.losses);
    EXPECT_EQ(rank.norms, whole.norms);
  }
}

// Micro-batches of one sample leave ranks nothing of it to share: weights are cut instead.
TEST(AutoParallel, cuts_a_batch_only_into_whole_parts_of_micro_batches) {
  nn::Mlp mlp({12, 16, 10});
  const Graph graph = training_step(mlp_model(mlp), class_loss(), mlp_batch(kSamples), AdamW{}, {.name = "mlp"});
  for (const auto& [name, kind] : kStrategySearches) {
    if (kind == SearchKind::kShardingPropagation) continue;  // whose batch lies as the dataset strategy says
    Parallel parallel{.accumulation = 32, .search = {.kind = kind}};
    parallel.communication.machine = fast_links();
    const Compiled made = compile(graph, {.ranks = 4, .parallel = parallel});
    for (const int axis : made.strategy.inputs[0].dims[0])
      EXPECT_TRUE(is_micro_batch_axis(made.strategy.mesh, axis)) << name;
    EXPECT_THAT(made.search, testing::StartsWith("auto_parallel by " + std::string(name))) << name;
  }
}

TEST(AutoParallel, contracts_7_5_3_a_hundred_layers_over_128_ranks_move_no_more_than_data_parallel_ones) {
  nn::Mlp mlp(std::vector<int64_t>(101, 256));
  const Graph graph =
      training_step(mlp_model(mlp), class_loss(), {{"x", {DType::kF32, {1024, 256}}}, {"y", {DType::kI32, {1024}}}},
                    AdamW{}, {.name = "deep"});
  const SearchConditions conditions;

  const StepPrice data = price_of(graph, data_parallel(graph, 128), conditions);
  for (const auto& [name, cost] : kSearchCosts) {
    const SearchResult found = search_strategy(graph, parse_mesh("dp=128"),
                                               {.kind = SearchKind::kRecursiveProgramming, .cost = cost}, conditions);

    const StepPrice price = price_of(graph, found.strategy, conditions);
    EXPECT_LE(price.moved_ps, data.moved_ps) << name;
    EXPECT_LT(price.price.time_ps, data.price.time_ps) << name;
  }
}

Graph mlp_of(int64_t batch, int64_t in, int64_t hidden, int64_t out) {
  Graph graph("ffn");
  const Tensor x = data_input(graph, "x", {batch, in});
  const Tensor first = in_scope(graph, "dense1", [&] {
    return matmul(x, parameter(graph, "dense1.weight", {in, hidden}));
  });
  const Tensor bias = in_scope(graph, "bias", [&] { return add(first, parameter(graph, "dense1.bias", {hidden})); });
  const Tensor active = in_scope(graph, "relu", [&] { return relu(bias); });
  const Tensor second = in_scope(graph, "dense2", [&] {
    return matmul(active, parameter(graph, "dense2.weight", {hidden, out}));
  });
  graph.add_output("y", second.id());
  return graph;
}

Strategy searched(const Graph& graph, int64_t ranks, Parallel parallel, SearchKind kind) {
  parallel.search.kind = kind;
  return semi_auto(graph, ranks, parallel, {.decide = [&](const Graph& of, const Mesh& mesh, const Asks& asks) {
                     return search_strategy(of, mesh, {.kind = kind}, {.asks = asks}).strategy;
                   }});
}

std::vector<Layout> operands_of(const Graph& graph, const Strategy& strategy, const std::string& scope) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (graph.scope_of(graph.nodes()[i]) == scope)
      return operand_layouts(*rule_of(graph, graph.nodes()[i]), strategy.nodes[i]);
  }
  return {};
}

std::string cuts_of(const Graph& graph, const Strategy& strategy, const std::string& scope) {
  std::string out;
  for (const Layout& layout : operands_of(graph, strategy, scope)) {
    out += out.empty() ? "(" : ", (";
    for (int dim = 0; dim < layout.rank(); ++dim)
      out += fmt::format("{}{}", dim > 0 ? "," : "", layout.cuts(dim, strategy.mesh));
    out += ")";
  }
  return out;
}

// The documented outcome for a feed-forward network of which one product is configured.
TEST(AutoParallel, sharding_propagation_goes_on_from_what_is_asked) {
  const Graph graph = mlp_of(64, 32, 128, 32);
  const Parallel parallel{.mesh = "dp=2,tp=4", .dataset = "full_batch", .ops = {{"dense1/matmul", "{{2,1},{1,4}}"}}};

  const Strategy found = searched(graph, 8, parallel, SearchKind::kShardingPropagation);

  EXPECT_EQ(cuts_of(graph, found, "dense1"), "(2,1), (1,4)");
  EXPECT_EQ(cuts_of(graph, found, "bias"), "(2,4), (4)");
  EXPECT_EQ(cuts_of(graph, found, "relu"), "(2,4)");
  EXPECT_EQ(cuts_of(graph, found, "dense2"), "(2,4), (4,1)");
}

// From the last op back to the first.
TEST(AutoParallel, sharding_propagation_goes_back_from_what_is_asked) {
  const Graph graph = mlp_of(64, 32, 128, 32);
  const Parallel parallel{.mesh = "dp=2,tp=4", .dataset = "full_batch", .ops = {{"dense2/matmul", "{{2,4},{4,1}}"}}};

  const Strategy found = searched(graph, 8, parallel, SearchKind::kShardingPropagation);

  EXPECT_EQ(cuts_of(graph, found, "relu"), "(2,4)");
  EXPECT_EQ(cuts_of(graph, found, "bias"), "(2,4), (4)");
  EXPECT_EQ(cuts_of(graph, found, "dense1"), "(2,1), (1,4)");
}

TEST(AutoParallel, keeps_what_is_asked_under_every_search) {
  const Graph graph = mlp_of(64, 32, 128, 32);
  const Parallel parallel{.mesh = "dp=2,tp=2",
                          .dataset = "[tp]",
                          .parameters = {{"dense2.weight", "[-, dp]"}},
                          .ops = {{"dense1/matmul", "[-, dp], [dp, -]"}}};
  for (const auto& [name, kind] : kStrategySearches) {
    const Strategy found = searched(graph, 4, parallel, kind);

    EXPECT_EQ(cuts_of(graph, found, "dense1"), "(1,2), (2,1)") << name;
    EXPECT_EQ(to_string(found.inputs[0], found.mesh), "[tp, -]") << name;
    EXPECT_EQ(to_string(found.inputs[3], found.mesh), "[-, dp]") << name;
    EXPECT_EQ(found.why_inputs[0], "dataset strategy '[tp]'") << name;
  }
}

TEST(AutoParallel, slices_state_as_it_is_asked_to) {
  const Graph graph = mlp_step(AdamW{});
  Parallel parallel{.mesh = "dp=4", .optimizer = {.level = 1, .threshold_kb = 0}};
  parallel.search.kind = SearchKind::kShardingPropagation;
  const Compiled compiled = compile(graph, {.ranks = 4, .parallel = parallel});

  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    if (graph.inputs()[i].role != Role::kState || graph.type(graph.inputs()[i].value).shape.rank() != 2) continue;
    const bool divides = graph.type(graph.inputs()[i].value).shape[0] % 4 == 0;
    EXPECT_EQ(to_string(compiled.strategy.inputs[i], compiled.strategy.mesh), divides ? "[dp, -]" : "[-, dp]");
  }
}

TEST(AutoParallel, says_what_it_found) {
  const Compiled compiled =
      compile(gpt_step(AdamW{}),
              {.ranks = 4, .parallel = {.mesh = "dp=2,tp=2", .search = {.kind = SearchKind::kDynamicProgramming}}});

  EXPECT_THAT(compiled.search, testing::StartsWith("auto_parallel by dynamic_programming over mesh 'dp=2,tp=2'"));
  EXPECT_THAT(compiled.search, testing::HasSubstr("a step is predicted to take "));
  EXPECT_THAT(compiled.search, testing::HasSubstr("h.*.mlp.c_fc/matmul"));
}

TEST(AutoParallel, refuses_what_a_search_does_not_keep) {
  Graph graph("own");
  const Tensor x = data_input(graph, "x", {8, 4});
  const Tensor sum = in_scope(graph, "mean", [&] { return reduce_sum(x, {0}, false); });
  graph.add_output("y", sum.id());
  const Parallel parallel{.mesh = "dp=2", .ops = {{"mean/reduce_sum", "cross_batch"}}};

  EXPECT_EQ(
      error_of([&] { searched(graph, 2, parallel, SearchKind::kDynamicProgramming); }),
      "cross_batch is set on reduce_sum of 'mean', and the searches dynamic_programming and recursive_programming do "
      "not follow it; use sharding_propagation, or leave it out");
  EXPECT_EQ(error_of([&] { searched(graph, 2, parallel, SearchKind::kShardingPropagation); }), "no error");
}

}  // namespace
}  // namespace trireme::auto_parallel_test

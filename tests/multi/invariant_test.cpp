// numerics = "invariant": the same bits of losses, parameters and optimizer state however a job is cut.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <mutex>

#include "tests/equivalence/draw.h"
#include "tests/multi/loss_curve.h"
#include "tests/multi/training_support.h"
#include "trireme/base/error.h"
#include "trireme/base/thread_pool.h"
#include "trireme/comm/comm.h"
#include "trireme/nn/models/deepseek.h"
#include "trireme/nn/models/t5.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/propagate/propagate.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/partition/partition.h"
#include "trireme/tensor/host_tensor.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/step/invariant.h"

namespace trireme::invariant_test {
namespace {

using namespace testing_support;

constexpr int kSteps = 4;
constexpr int64_t kSamples = 32;  // in leaves of 2

struct RankPiece {
  Box box;
  HostTensor values;
};
struct Trained {
  std::vector<float> losses, norms;
  std::map<std::string, RankPiece> pieces;  // of parameters and optimizer state
};

Graph step_of(const std::string& model, Numerics numerics) {
  const auto train = [&](const ModelFn& forward, const std::vector<BatchField>& batch) {
    const Optimizer optimizer = model == "lamb" ? Optimizer(Lamb{.weight_decay = 0.1}) : AdamW{.weight_decay = 0.1};
    return training_step(forward, class_loss(), batch, optimizer,
                         {.name = model, .seed = 3, .clip_norm = 0.5, .numerics = numerics});
  };
  const std::vector<BatchField> text = {{"x", {DType::kI32, {kSamples, 8}}}, {"y", {DType::kI32, {kSamples, 8}}}};
  if (model == "gpt") {
    nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 2, .width = 16, .heads = 4, .dropout = 0.1});
    return train([&](const Tensor& x) { return gpt(x); }, text);
  }
  if (model == "llama") {
    nn::Llama llama({.vocabulary = 20,
                     .context = 8,
                     .layers = 2,
                     .width = 16,
                     .heads = 4,
                     .kv_heads = 2,
                     .hidden = 24,
                     .init_std = 0.2});
    return train([&](const Tensor& x) { return llama(x); }, text);
  }
  if (model == "deepseek") {
    nn::DeepSeek deepseek({.vocabulary = 20,
                           .context = 8,
                           .layers = 2,
                           .width = 16,
                           .heads = 4,
                           .query_rank = 8,
                           .key_rank = 8,
                           .head_size = 4,
                           .rotary_size = 2,
                           .value_size = 4,
                           .hidden = 24,
                           .expert_hidden = 8,
                           .top_k = 3,
                           .routing = {.sigmoid = true, .expert_nodes = 4, .top_nodes = 2, .bias_rate = 0.01},
                           .aux_loss_factor = 0,
                           .expert_groups = kSamples,
                           .init_std = 0.2});
    return train([&](const Tensor& x) { return deepseek(x); }, text);
  }
  if (model == "t5") {
    nn::T5 t5({.vocabulary = 20, .layers = 2, .width = 16, .heads = 4, .dropout = 0.1});
    const auto loss = [](const nn::Fields& predicted, const nn::Fields& batch) {
      return cross_entropy(predicted[nn::kPrediction], batch["targets"]);
    };
    const TensorType ids{DType::kI32, {kSamples, 8}}, written{DType::kI32, {kSamples, 6}};
    return training_step([&](const nn::Fields& batch) { return t5(batch); }, loss,
                         {{"tokens", ids}, {"decoder_tokens", written}, {"targets", written}},
                         AdamW{.weight_decay = 0.1},
                         {.name = model, .seed = 3, .clip_norm = 0.5, .numerics = numerics});
  }
  nn::Mlp mlp(model == "odd" ? std::vector<int64_t>{12, 11, 15, 10} : std::vector<int64_t>{12, 16, 10});
  return train(mlp_model(mlp), mlp_batch(kSamples));
}

struct How {
  Numerics numerics = Numerics::kInvariant;
  int steps = kSteps;
  PassOptions passes = {};
};

Trained train(const std::string& model, Parallel parallel, comm::World* world, int threads, const How& how = {}) {
  ThreadPool pool(threads);
  Session session(step_of(model, how.numerics), std::nullopt,
                  {.world = world,
                   .pool = &pool,
                   .seed = 5,
                   .compile = {.parallel = parallel, .numerics = how.numerics, .passes = how.passes}});
  session.initialise();
  Trained out;
  for (int step = 1; step <= how.steps; ++step) {
    out.losses.push_back(train_step(session, step, 0.01F));
    out.norms.push_back(session.step().output("grad_norm").as<float>()[0]);
  }
  for (const PlanInput& input : session.persistent()) {
    const View view = session.step().input(input.name);
    HostTensor copy(view.type);
    std::memcpy(copy.view().data, view.data, static_cast<size_t>(view.bytes()));
    out.pieces.emplace(input.name, RankPiece{session.step().input_box(input.name), std::move(copy)});
  }
  return out;
}

// "" when the rank's losses, norms and pieces are those of the whole, to the bit.
std::string difference_of(const Trained& rank, const Trained& whole) {
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  if (!same(rank.losses, whole.losses)) return "other losses";
  if (!same(rank.norms, whole.norms)) return "other gradient norms";
  for (const auto& [name, piece] : rank.pieces) {
    const HostTensor& all = whole.pieces.at(name).values;
    HostTensor expected(piece.values.type());
    copy_region(all.view(), Box::whole(all.shape()), expected.view(), piece.box, held(piece.box, all.shape()));
    if (!have_equal_bytes(expected.view(), piece.values.view())) return "other bits of " + name;
  }
  return "";
}

struct Case {
  std::string name;
  int64_t ranks = 1, tp = 1, zero = 0;
  int threads = 1;
  int64_t micro_batches = 1;
  int64_t pp = 1;
  std::string schedule = "1f1b";
  int64_t interleave = 1;
};

Parallel parallel_for(const Case& c, const std::string& model) {
  JobConfig config;
  const bool is_mlp = model == "mlp" || model == "odd" || model == "lamb";
  set_keys(config, is_mlp ? std::vector<std::string>{"model.kind=mlp"}
                          : std::vector{"model.kind=" + model, std::string("model.heads=4")});
  if (model == "llama") set_keys(config, {"model.kv_heads=2"});
  if (model == "deepseek") set_keys(config, {"model.query_rank=8", fmt::format("model.expert_groups={}", kSamples)});
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = c.tp;
  config.parallel.zero.level = c.zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = c.micro_batches;
  config.parallel.interleave = c.interleave;
  config.parallel.pp = c.pp;
  config.parallel.schedule = c.schedule;
  config.train.step.numerics = Numerics::kInvariant;
  return parallel_of(config, c.ranks);
}

std::vector<Case> cases() {
  return {{"one_rank_three_threads", 1, 1, 0, 3},
          {"dp2", 2},
          {"dp4_two_threads", 4, 1, 0, 2},
          {"dp8", 8},
          {"tp2", 2, 2},
          {"dp2_tp2", 4, 2},
          {"dp4_tp2_two_threads", 8, 2, 0, 2},
          {"zero1_dp2", 2, 1, 1},
          {"zero2_dp4", 4, 1, 2},
          {"zero3_dp4", 4, 1, 3},
          {"dp2_tp2_zero1", 4, 2, 1},
          {"dp2_tp2_zero2", 4, 2, 2},
          {"dp2_tp2_zero3_two_threads", 4, 2, 3, 2},
          {"accumulation8", 1, 1, 0, 1, 8},
          {"dp2_accumulation4", 2, 1, 0, 1, 4},
          {"dp4_accumulation2_two_threads", 4, 1, 0, 2, 2},
          {"dp2_tp2_accumulation4", 4, 2, 0, 1, 4},
          {"zero2_dp4_accumulation4", 4, 1, 2, 1, 4},
          {"dp2_tp2_zero3_accumulation8", 4, 2, 3, 1, 8},
          {"pp2", 2, 1, 0, 1, 4, 2},
          {"pp2_gpipe_dp2", 4, 1, 0, 1, 4, 2, "gpipe"},
          {"pp2_zb_h1_tp2", 4, 2, 0, 1, 2, 2, "zb-h1"},
          {"pp2_dp2_tp2_zero1_two_threads", 8, 2, 1, 2, 2, 2},
          {"tp2_interleave2", 2, 2, 0, 1, 1, 1, "1f1b", 2},
          {"dp2_tp2_zero3_interleave4", 4, 2, 3, 1, 1, 1, "1f1b", 4},
          {"pp2_zb_h1_dp2_zero2_interleave2", 4, 1, 2, 1, 2, 2, "zb-h1", 2}};
}

std::vector<Case> deep_cases() {  // of more stages than an MLP has modules
  return {{"pp4_zb_h2", 4, 1, 0, 1, 4, 4, "zb-h2"},
          {"pp2_interleaved", 2, 1, 0, 1, 4, 2, "interleaved"},
          {"pp2_interleaved_delayed_zero2_dp2", 4, 1, 2, 1, 4, 2, "interleaved-delayed"},
          {"pp2_zb_v_tp2", 4, 2, 0, 1, 4, 2, "zb-v"},
          {"pp2_v_half_zero3_dp2", 4, 1, 3, 1, 4, 2, "v-half"},
          {"pp2_v_min", 2, 1, 0, 1, 8, 2, "v-min"},
          {"pp2_dualpipe_v_dp2_zero3_tp2", 8, 2, 3, 1, 4, 2, "dualpipe-v"}};
}

class Invariant : public testing::TestWithParam<std::tuple<std::string, Case>> {};

TEST_P(Invariant, HasTheBitsOfOneRank) {
  const auto& [model, c] = GetParam();
  const Trained whole = train(model, {}, nullptr, 1);
  ASSERT_NE(whole.losses.front(), whole.losses.back());
  const Parallel parallel = parallel_for(c, model);
  std::mutex mutex;
  comm::spawn_ranks(static_cast<int>(c.ranks), "threads", [&](comm::World& world) {
    const Trained mine = train(model, parallel, &world, c.threads);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(difference_of(mine, whole), "") << "rank " << world.rank();
  });
}

INSTANTIATE_TEST_SUITE_P(Cuts, Invariant,
                         testing::Combine(testing::Values("mlp", "gpt", "llama", "deepseek", "t5", "lamb"),
                                          testing::ValuesIn(cases())),
                         [](const auto& each) { return std::get<0>(each.param) + "_" + std::get<1>(each.param).name; });

INSTANTIATE_TEST_SUITE_P(UnevenSlices, Invariant,
                         testing::Combine(testing::Values("odd"),
                                          testing::Values(Case{"zero1_dp2", 2, 1, 1}, Case{"zero3_dp8", 8, 1, 3},
                                                          Case{"zero2_dp4_accumulation4", 4, 1, 2, 1, 4},
                                                          Case{"pp2_dp2_zero3", 4, 1, 3, 1, 2, 2})),
                         [](const auto& each) { return std::get<0>(each.param) + "_" + std::get<1>(each.param).name; });

INSTANTIATE_TEST_SUITE_P(Pipelines, Invariant,
                         testing::Combine(testing::Values("gpt", "llama"), testing::ValuesIn(deep_cases())),
                         [](const auto& each) { return std::get<0>(each.param) + "_" + std::get<1>(each.param).name; });

// -- random layouts -------------------------------------------------------------------------------

struct DrawnLayout {
  Case c;
  PassOptions passes;
  Fusion fusion;
  int64_t reuse = 0;
  std::vector<int> stages;  // of modules_of the model, in their order; none: cut by cost
};

// The modules that can be given to stages, in the order in which they run: parts of blocks, so that skip connections
// cross from one stage to another.
std::vector<std::string> modules_of(const std::string& model) {
  if (model == "gpt") return {"wte", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "ln_f"};
  return {"model.embed_tokens",       "model.layers.0.self_attn", "model.layers.0.mlp",
          "model.layers.1.self_attn", "model.layers.1.mlp",       "model.norm"};
}

Parallel parallel_for(const DrawnLayout& layout, const std::string& model) {
  Parallel out = parallel_for(layout.c, model);
  out.communication.fusion = layout.fusion;
  out.communication.reuse = layout.reuse;
  const std::vector<std::string> modules = modules_of(model);
  for (size_t i = 0; i < layout.stages.size(); ++i) out.pipeline.rules.push_back({modules[i], layout.stages[i]});
  return out;
}

std::string to_string(const Fusion& fusion) {
  if (!fusion.is_on) return "off";
  if (!fusion.ids.empty()) return "by ids";
  return fusion.all_reduce.bytes > 0 ? fmt::format("of {} bytes", fusion.all_reduce.bytes) : "by the model";
}

std::string to_string(const DrawnLayout& layout) {
  const Case& c = layout.c;
  const Recompute& again = layout.passes.recompute;
  return fmt::format(
      "{} ranks, tp {}, pp {} {}, zero {}, {} micro-batches, interleave {}, recompute {} blocks{}, fusion {}, reuse "
      "{}, "
      "stages [{}]",
      c.ranks, c.tp, c.pp, c.schedule, c.zero, c.micro_batches, c.interleave, again.blocks,
      again.rows ? " and rows" : "", to_string(layout.fusion), layout.reuse, fmt::join(layout.stages, ","));
}

Fusion draw_fusion(equivalence::Draw& draw) {
  Fusion out;
  switch (draw.below(4)) {
    case 0:
      out.is_on = false;
      break;
    case 1:
      out.ids = {{"", 1}, {"h.*", 2}, {"wte", 0}};
      break;
    case 2:
      out.all_reduce.bytes = out.reduce_scatter.bytes = out.all_gather.bytes = draw.of({100, 3000, 1 << 20});
      break;
    default:
      break;  // by the model
  }
  return out;
}

// So many stages, none empty, of any number of the six modules; none where there are more stages than these.
std::vector<int> draw_stages(int64_t count, equivalence::Draw& draw) {
  constexpr int64_t kModules = 6;
  if (count > kModules) return {};
  std::vector<int> begins;  // a stage, but for the first
  for (int module = 1; module < kModules; ++module) begins.push_back(module);
  draw.shuffle(begins);
  begins.resize(static_cast<size_t>(count - 1));
  std::vector<int> out;
  for (int module = 0; module < kModules; ++module) {
    out.push_back(static_cast<int>(std::ranges::count_if(begins, [&](int begin) { return begin <= module; })));
  }
  return out;
}

// Up to 8 ranks: data and tensor parallel ranks, optimizer parallelism, crews, schedules, micro-batches, their copies,
// what is computed again, which collectives go together, and stages of their own, mostly uneven.
DrawnLayout draw_layout(equivalence::Draw& draw) {
  static const std::vector<std::string> kSchedules{"gpipe", "1f1b",   "zb-h1", "zb-h2",      "interleaved",
                                                   "zb-v",  "v-half", "v-min", "dualpipe-v", "interleaved-delayed"};
  DrawnLayout out;
  Case& c = out.c;
  c.tp = draw.of({1, 1, 2, 4});
  c.pp = draw.of({1, 2, 2, 4});
  const int64_t dp = draw.of({1, 2, 4});
  c.ranks = c.tp * c.pp * dp;
  c.zero = draw.below(4);
  c.micro_batches = draw.of({1, 2, 4, 8, 16});
  c.schedule = c.pp > 1 ? draw.of(kSchedules) : "1f1b";
  c.interleave = draw.chance(25) ? 2 : 1;
  out.passes.recompute = {.rows = draw.chance(30), .blocks = draw.of({0, 0, -1, 1})};
  out.fusion = draw_fusion(draw);
  out.reuse = draw.of({0, 0, -1});
  if (c.pp > 1 && draw.chance(50)) {
    const int per_crew = find_schedule(c.schedule).stages_per_crew;
    out.stages = draw_stages(c.pp * (per_crew == 0 ? 2 : per_crew), draw);
  }
  return out;
}

// Whether such a job can be: the mode, the schedule or the sizes may refuse it.
bool is_accepted(const DrawnLayout& layout, const std::string& model) {
  if (layout.c.ranks > 8) return false;
  try {
    compile(step_of(model, Numerics::kInvariant), {.ranks = layout.c.ranks,
                                                   .parallel = parallel_for(layout, model),
                                                   .numerics = Numerics::kInvariant,
                                                   .passes = layout.passes});
    return true;
  } catch (const Error& e) {
    EXPECT_NE(e.kind(), ErrorKind::kInternal) << to_string(layout) << ": " << e.text();
    return false;
  }
}

// contracts 9, 12, 13 and 8 together: so many random layouts of jobs of so many steps, from draws of this seed.
void expect_bits_of_one_rank(int layouts, int steps, uint32_t seed) {
  equivalence::Draw draw(seed);
  std::map<std::string, Trained> whole;
  for (const std::string model : {"gpt", "llama"}) whole.emplace(model, train(model, {}, nullptr, 1, {.steps = steps}));
  int pipelines = 0, with_stages = 0;
  int drawn = 0;
  for (int done = 0; done < layouts && drawn < 50 * layouts; ++drawn) {
    const std::string model = draw.chance(50) ? "gpt" : "llama";
    const DrawnLayout layout = draw_layout(draw);
    if (!is_accepted(layout, model)) continue;
    ++done;
    pipelines += layout.c.pp > 1 ? 1 : 0;
    with_stages += layout.stages.empty() ? 0 : 1;
    const Parallel parallel = parallel_for(layout, model);
    const auto run = [&](comm::World* world) {
      return difference_of(train(model, parallel, world, 1, {.steps = steps, .passes = layout.passes}),
                           whole.at(model));
    };
    if (layout.c.ranks == 1) {
      ASSERT_EQ(run(nullptr), "") << model << ": " << to_string(layout);
      continue;
    }
    std::mutex mutex;
    std::string found;
    comm::spawn_ranks(static_cast<int>(layout.c.ranks), "threads", [&](comm::World& world) {
      const std::string mine = run(&world);
      const std::lock_guard lock(mutex);
      if (found.empty() && !mine.empty()) found = fmt::format("rank {}: {}", world.rank(), mine);
    });
    ASSERT_EQ(found, "") << model << ": " << to_string(layout);
  }
  EXPECT_LT(drawn, 50 * layouts) << "too few layouts are accepted";
  EXPECT_GT(3 * pipelines, layouts);
  EXPECT_GT(10 * with_stages, layouts);
}

TEST(InvariantLayouts, a_hundred_random_ones_have_the_bits_of_one_rank) {
  expect_bits_of_one_rank(100, 4, 1);
}
// By `ctest -C nightly`.
TEST(InvariantLayouts, DISABLED_a_thousand_others_have_them_over_fifty_steps) {
  expect_bits_of_one_rank(1000, 50, 2);
}

// So that the tests above can fail: it is the mode that keeps the bits, not chance.
TEST(InvariantMode, FastHasOtherBitsSomewhere) {
  std::mutex mutex;
  std::string found;
  const Trained whole = train("gpt", {}, nullptr, 1, {.numerics = Numerics::kFast});
  for (const Case& c : {Case{"dp4", 4}, Case{"tp2", 2, 2}}) {
    comm::spawn_ranks(static_cast<int>(c.ranks), "threads", [&](comm::World& world) {
      const Trained mine = train("gpt", parallel_for(c, "gpt"), &world, 1, {.numerics = Numerics::kFast});
      const std::lock_guard lock(mutex);
      found += difference_of(mine, whole);
    });
  }
  EXPECT_NE(found, "");
}

std::string refusal(const Case& c, const std::string& model, const std::function<void(Parallel&)>& change = {}) {
  Parallel parallel = parallel_for(c, model);
  if (change) change(parallel);
  try {
    compile(step_of(model, Numerics::kInvariant),
            {.ranks = c.ranks, .parallel = parallel, .numerics = Numerics::kInvariant});
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    return e.text();
  }
  return "";
}

TEST(InvariantErrors, SumsInPartsThatAreNoPowerOfTwoAreRefused) {
  EXPECT_THAT(refusal({"", 32}, "mlp"), testing::HasSubstr("the parts must be 2, 4, 8 or 16"));
}

TEST(InvariantErrors, SumsOverPositionsAreRefused) {
  EXPECT_THAT(refusal({"", 2}, "gpt", [](Parallel& parallel) { parallel.dataset = "[-, dp]"; }),
              testing::AllOf(testing::HasSubstr("numerics = 'invariant': "),
                             testing::HasSubstr("which it sums over in one piece"),
                             testing::HasSubstr("or use numerics = 'fast'")));
}

TEST(InvariantErrors, CutsThatSomeoneVouchesForAreRefused) {
  EXPECT_THAT(refusal({"", 2}, "gpt",
                      [](Parallel& parallel) {
                        parallel.ops = {{"h.0.mlp/gelu", "self_define_shard [dp,-,-] -> [dp,-,-]"}};
                      }),
              testing::HasSubstr("gelu of 'h.0.mlp' is cut as someone vouches for"));
}

TEST(InvariantErrors, CopiesOnARankAreRefused) {
  EXPECT_THAT(refusal({"", 2}, "gpt",
                      [](Parallel& parallel) {
                        parallel.mesh = "dp=2,interleaved_parallel=2";
                        parallel.ops = {{"h.0.mlp.c_fc", "[dp*interleaved_parallel, -, -], [-, -]"}};
                      }),
              testing::HasSubstr("is computed in copies on each rank"));
}

TEST(InvariantErrors, ModelsThatAreCutByHandAreRefused) {
  Parallel parallel{.mesh = "dp=1", .by_hand = true};
  EXPECT_THAT(
      [&] { compile(step_of("mlp", Numerics::kInvariant), {.parallel = parallel, .numerics = Numerics::kInvariant}); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("is not for models cut by hand")));
}

// Ranks' sums of single micro-batches, added later, are another tree.
TEST(InvariantErrors, SlicesOfGradientsAddedUpAfterTheSumOverRanksAreRefused) {
  EXPECT_THAT(
      refusal({"", 4, 1, 2, 1, 4}, "mlp", [](Parallel& parallel) { parallel.communication.shard_accumulation = true; }),
      testing::HasSubstr("is made in more than one step"));
}

TEST(InvariantErrors, SumsOverRanksThatCountOtherwiseThanTheMeshAreRefused) {
  Graph graph("step");
  const Tensor x = {graph, graph.add_input("x", {DType::kF32, {4, 8}}, Role::kData)};
  const Tensor w = {graph, graph.add_input("w", {DType::kF32, {8, 4}}, Role::kParameter)};
  graph.add_output("y", matmul(x, w).id());
  const auto refusal_of = [&](const std::vector<int>& axes) {
    const Mesh mesh = parse_mesh("a=2,b=2");
    Strategy strategy = propagate(graph, mesh, std::vector<Layout>(2, Layout::replicated(2)));
    const ShardingRule rule = *rule_of(graph, graph.nodes()[0]);
    const auto k = std::ranges::find(rule.factors, "k", &Factor::name) - rule.factors.begin();
    strategy.nodes[0].axes.at(static_cast<size_t>(k)) = {0, 1};
    strategy.outputs[0].dims[1] = axes;
    try {
      require_invariant(graph, strategy);
      require_invariant(partition(graph, strategy));
    } catch (const Error& e) {
      return e.text();
    }
    return std::string();
  };
  EXPECT_EQ(refusal_of({0, 1}), "");
  EXPECT_THAT(refusal_of({1, 0}), testing::HasSubstr("is made by mesh axes in another order than the mesh has them"));
}

}  // namespace
}  // namespace trireme::invariant_test

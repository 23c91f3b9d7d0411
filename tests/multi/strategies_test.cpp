// Every way to cut a model trains as one device does, and sends the bytes that its formula says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tests/multi/loss_curve.h"
#include "tests/multi/small_graphs.h"
#include "trireme/base/error.h"
#include "trireme/exec/analysis/traffic.h"
#include "trireme/partition/partition.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::strategies_test {
namespace {

using namespace testing_support;

constexpr float kRate = 0.2F;

struct Trained {
  Curve curve;
  std::map<std::string, comm::World::Traffic> traffic;  // of the last step
  std::vector<PlanTraffic> planned;
};

std::map<std::string, comm::World::Traffic> traffic_of(const comm::World& world) {
  std::map<std::string, comm::World::Traffic> out;
  for (const comm::World::Traffic& t : world.traffic()) out[t.kind] = t;
  return out;
}

Trained train(const Graph& graph, const Parallel& parallel, comm::World* world) {
  Session session(graph, std::nullopt, {.world = world, .seed = 5, .compile = {.parallel = parallel}});
  session.initialise();
  Trained out;
  note_start(session.step(), out.curve);
  for (int step = 1; step <= kSteps; ++step) {
    const auto before = world ? traffic_of(*world) : out.traffic;
    out.curve.losses.push_back(train_step(session, step, kRate));
    if (!world) continue;
    out.traffic = traffic_of(*world);
    for (auto& [kind, t] : out.traffic) {
      if (const auto was = before.find(kind); was != before.end()) {
        t.calls -= was->second.calls;
        t.bytes -= was->second.bytes;
      }
    }
  }
  note_end(session.step(), out.curve);
  out.planned = traffic_per_step(session.plan());
  return out;
}

struct Case {
  std::string name;
  int ranks;
  Parallel parallel;
  std::string model = "gpt";
  bool loss_in_parts = false;
  int64_t experts = 0, expert_groups = 1;
  int64_t vocabulary = 20;
};

// Keys are read once: all cases are made whenever the program starts, which is for each of its tests.
const JobConfig& job_of(const std::string& model) {
  const auto made = [](const std::vector<std::string>& keys) {
    JobConfig config;
    set_keys(config, keys);
    return config;
  };
  static std::map<std::string, JobConfig> jobs;
  if (jobs.empty()) {
    jobs["gpt"] = made({"model.kind=gpt", "model.heads=2"});
    jobs["llama"] = made({"model.kind=llama", "model.heads=4", "model.kv_heads=2"});
    for (const std::string of : {"gpt", "llama"}) {
      for (const std::string groups : {"1", "2", "4"}) {
        JobConfig& config = jobs[of + groups] = jobs[of];
        set_keys(config, {"model.experts=4", "model.expert_groups=" + groups});
      }
    }
  }
  return jobs.at(model);
}

JobConfig config_of(const std::string& model, int64_t tp, bool sp, int64_t zero) {
  JobConfig config = job_of(model);
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = tp;
  config.parallel.sp = sp;
  config.parallel.zero.level = zero;
  config.parallel.zero.threshold_kb = 0;
  return config;
}

Case ready_made(const std::string& name, int ranks, int64_t tp, bool sp, int64_t zero,
                const std::string& model = "gpt") {
  return {name, ranks, parallel_of(config_of(model, tp, sp, zero), ranks), model};
}

std::vector<Case> cases_of(const std::string& model) {
  const auto made = [&](const std::string& name, int ranks, int64_t tp, bool sp, int64_t zero) {
    return ready_made(model + "_" + name, ranks, tp, sp, zero, model);
  };
  const auto context = [&](const std::string& name, int ranks, int64_t cp, int64_t tp, bool sp, int64_t zero) {
    JobConfig config = config_of(model, tp, sp, zero);
    config.parallel.cp = cp;
    return Case{model + "_" + name, ranks, parallel_of(config, ranks), model};
  };
  const auto rings = [&](const std::string& name, int ranks, int64_t cp, int64_t tp, bool sp, int64_t zero) {
    JobConfig config = config_of(model, tp, sp, zero);
    config.parallel.cp = cp;
    config.parallel.cp_algorithm = name.starts_with("hybrid") ? ContextAlgorithm::kHybrid : ContextAlgorithm::kRing;
    return Case{model + "_" + name, ranks, parallel_of(config, ranks), model};
  };
  const auto vocabulary = [&](const std::string& name, int ranks, bool sp, int64_t zero) {
    JobConfig config = config_of(model, 2, sp, zero);
    config.parallel.vocabulary = true;
    return Case{model + "_" + name, ranks, parallel_of(config, ranks), model, true};
  };
  std::vector<Case> out{
      made("dp2", 2, 1, false, 0),
      made("tp2", 2, 2, false, 0),
      made("tp2_sp", 2, 2, true, 0),
      made("dp2_tp2", 4, 2, false, 0),
      made("dp2_tp2_sp", 4, 2, true, 0),
      made("zero1", 4, 1, false, 1),
      made("zero2", 4, 1, false, 2),
      made("zero3", 4, 1, false, 3),
      made("dp2_tp2_zero1", 4, 2, false, 1),
      made("dp2_tp2_zero3", 4, 2, false, 3),
      made("dp2_tp2_sp_zero3", 4, 2, true, 3),
      made("dp4_tp2_sp_zero2", 8, 2, true, 2),
      context("cp2", 2, 2, 1, false, 0),
      context("dp2_cp2", 4, 2, 1, false, 0),
      context("dp2_cp2_zero3", 4, 2, 1, false, 3),
      rings("ring2", 2, 2, 1, false, 0),
      rings("ring4", 4, 4, 1, false, 0),
      rings("dp2_ring2_zero3", 4, 2, 1, false, 3),
      rings("ring2_tp2_sp_zero1", 4, 2, 2, true, 1),
      rings("dp2_ring2_tp2", 8, 2, 2, false, 0),
      rings("hybrid2x2", 4, 4, 1, false, 0),
      vocabulary("tp2_vocabulary", 2, false, 0),
      vocabulary("dp2_tp2_sp_vocabulary_zero2", 4, true, 2),
  };
  Case positions = made("positions_cut_by_the_dataset", 4, 1, false, 0);
  positions.parallel.mesh = "dp=2,sp=2";
  positions.parallel.dataset = "[dp, sp]";
  out.push_back(positions);
  return out;
}

// A model of experts, which ranks share.
Case experts(const std::string& name, int ranks, int64_t ep, int64_t tp, int64_t zero, const std::string& model = "gpt",
             int64_t groups = 1) {
  JobConfig config = config_of(fmt::format("{}{}", model, groups), tp, false, zero);
  config.parallel.ep = ep;
  Case out{fmt::format("{}_experts_{}", model, name), ranks, parallel_of(config, ranks), model};
  out.experts = 4;
  out.expert_groups = groups;
  return out;
}

// Sizes that the ranks do not divide: 64 columns and 16 and 20 over 3, a vocabulary of 21 over 2.
std::vector<Case> in_uneven_parts() {
  std::vector<Case> out;
  Case columns = ready_made("uneven_columns", 6, 1, false, 0);
  columns.parallel.dataset = "full_batch";
  columns.parallel.ops = {{"h.*.mlp.c_fc", "{{2,1,1},{1,3}}"}, {"h.*.mlp.c_proj", "{{2,1,3},{3,1}}"}};
  out.push_back(columns);
  Case width = ready_made("uneven_width", 3, 1, false, 0);
  width.parallel.dataset = "full_batch";
  width.parallel.ops = {{"h.0.mlp.c_proj", "{{1,1,1},{1,3}}"},
                        {"h.1.mlp.c_fc", "{{1,1,3},{3,1}} -> {{1,1,3}}"},
                        {"wte", "{{3,1},{1,1}}"}};
  out.push_back(width);
  const auto vocabulary = [&](const std::string& name, int ranks, int64_t tp, bool sp, int64_t zero) {
    JobConfig config = config_of("gpt", tp, sp, zero);
    config.parallel.vocabulary = true;
    Case c{"uneven_vocabulary_" + name, ranks, parallel_of(config, ranks), "gpt", true};
    c.vocabulary = 21;
    out.push_back(c);
  };
  vocabulary("tp2", 2, 2, false, 0);
  vocabulary("dp2_tp2_sp_zero3", 4, 2, true, 3);
  return out;
}

std::vector<Case> cases() {
  std::vector<Case> out = cases_of("gpt");
  out.push_back(experts("dp2", 2, 1, 1, 0));
  out.push_back(experts("ep2", 2, 2, 1, 0));
  out.push_back(experts("dp2_ep2", 4, 2, 1, 0));
  out.push_back(experts("ep2_tp2_zero2", 4, 2, 2, 2));
  for (const std::string model : {"gpt", "llama"}) {
    out.push_back(experts("exchanged_ep2", 2, 2, 1, 0, model, 2));
    out.push_back(experts("exchanged_dp2_ep2", 4, 2, 1, 0, model, 4));
    out.push_back(experts("exchanged_dp2_ep2_zero3", 4, 2, 1, 3, model, 4));
    out.push_back(experts("exchanged_ep2_tp2_zero1", 4, 2, 2, 1, model, 2));
    out.push_back(experts("exchanged_ep4", 4, 4, 1, 0, model, 4));
  }
  out.push_back(experts("ep2", 2, 2, 1, 0, "llama"));
  for (Case& c : cases_of("llama")) out.push_back(std::move(c));
  Case groups = ready_made("zero3_in_groups_of_2", 4, 1, false, 3);
  groups.parallel.optimizer.shard_size = 2;
  out.push_back(groups);
  Case full = ready_made("full_batch", 2, 1, false, 0);
  full.parallel.dataset = "full_batch";
  out.push_back(full);
  Case numbers = ready_made("cuts_by_numbers", 4, 1, false, 0);
  numbers.parallel.dataset = "full_batch";
  numbers.parallel.ops = {{"h.*.mlp.c_fc", "{{2,1,1},{1,2}}"}, {"h.*.mlp.c_proj", "{{2,1,2},{2,1}} -> {{2,2,1}}"}};
  out.push_back(numbers);
  for (Case& c : in_uneven_parts()) out.push_back(std::move(c));
  return out;
}

Graph step_of(const Case& c, bool loss_in_parts) {
  const Sgd sgd{.momentum = 0.9};
  if (c.model == "llama") return llama_step(sgd, loss_in_parts, 1, c.experts, c.expert_groups);
  return gpt_step(sgd, loss_in_parts, c.experts, c.expert_groups, c.vocabulary);
}

class Strategies : public testing::TestWithParam<Case> {};

TEST_P(Strategies, train_a_language_model_as_one_device_does) {
  const Graph one = step_of(GetParam(), false);
  const Trained whole = train(one, {}, nullptr);
  const Graph graph = step_of(GetParam(), GetParam().loss_in_parts);
  const double share = rounding_share(graph);
  EXPECT_EQ(let_pass(whole.curve, share), "");
  std::mutex mutex;
  std::vector<Trained> ranks;
  comm::spawn_ranks(GetParam().ranks, "threads", [&](comm::World& world) {
    Trained mine = train(graph, GetParam().parallel, &world);
    const std::lock_guard lock(mutex);
    ranks.push_back(std::move(mine));
  });
  for (const Trained& rank : ranks) {
    EXPECT_EQ(difference_of(rank.curve, whole.curve, share), "");
    // What was sent is what the plan said; each call may round the bytes of a group that does not divide them.
    std::map<std::string, PlanTraffic> planned;
    for (const PlanTraffic& t : rank.planned) {
      planned[t.op].bytes += t.bytes;
      planned[t.op].calls += t.calls;
    }
    for (const auto& [kind, sent] : rank.traffic) {
      EXPECT_NEAR(static_cast<double>(sent.bytes), static_cast<double>(planned[kind].bytes),
                  static_cast<double>(sent.calls))
          << kind;
    }
    for (const auto& [kind, plan] : planned) EXPECT_GT(rank.traffic.count(kind), 0U) << kind;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, Strategies, testing::ValuesIn(cases()),
                         [](const auto& about) { return about.param.name; });

// Bytes a rank sends in a step of a block's products, by the formulas: n is an activation [batch, positions, width].
Graph unclipped_step() {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 2, .width = 16, .heads = 2});
  return training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), gpt_batch(), Sgd{}, {.name = "gpt"});
}
constexpr int64_t kLayers = 2;
constexpr int64_t kActivation = kBatch * 8 * 16 * 4;

std::map<std::string, int64_t> bytes_of(int ranks, const Parallel& parallel, const Graph& graph = unclipped_step()) {
  std::map<std::string, int64_t> out;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    const Trained mine = train(graph, parallel, &world);
    if (world.rank() != 0) return;
    for (const auto& [kind, t] : mine.traffic) out[kind] = t.bytes;
  });
  return out;
}

TEST(TensorParallelBytes, a_layer_reduces_two_activations_forward_and_two_back) {
  std::map<std::string, int64_t> bytes = bytes_of(2, ready_made("", 2, 2, false, 0).parallel);
  EXPECT_EQ(bytes["all_reduce"], kLayers * 4 * kActivation);  // 2 (p - 1) / p is 1 of each
  EXPECT_EQ(bytes["all_gather"] + bytes["reduce_scatter"] + bytes["all_to_all"], 0);
}

// Query, key and value read one tensor, as do gate and up: it is gathered once, and their gradients are summed before
// they are reduced.
TEST(TensorParallelBytes, a_layer_of_llama_reduces_as_many) {
  std::map<std::string, int64_t> bytes =
      bytes_of(2, ready_made("", 2, 2, false, 0, "llama").parallel, llama_step(Sgd{}, false, 0));
  EXPECT_EQ(bytes["all_reduce"], kLayers * 4 * kActivation);
  EXPECT_EQ(bytes["all_gather"] + bytes["reduce_scatter"] + bytes["all_to_all"], 0);
}

TEST(SequenceParallelBytes, a_layer_of_llama_gathers_and_scatters_as_many) {
  std::map<std::string, int64_t> bytes =
      bytes_of(2, ready_made("", 2, 2, true, 0, "llama").parallel, llama_step(Sgd{}, false, 0));
  EXPECT_EQ(bytes["all_gather"], kLayers * 4 * kActivation / 2);
  EXPECT_EQ(bytes["reduce_scatter"], kLayers * 4 * kActivation / 2);
}

TEST(TensorParallel, keys_and_values_of_llama_must_divide_over_the_ranks) {
  try {
    parallel_of(config_of("llama", 4, false, 0), 4);
    FAIL() << "4 ranks share 2 kv_heads";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("model.kv_heads = 2 does not divide over parallel.tp = 4 ranks"));
  }
}

TEST(SequenceParallelBytes, a_layer_gathers_and_scatters_four_activations) {
  std::map<std::string, int64_t> bytes = bytes_of(2, ready_made("", 2, 2, true, 0).parallel);
  EXPECT_EQ(bytes["all_gather"], kLayers * 4 * kActivation / 2);
  EXPECT_EQ(bytes["reduce_scatter"], kLayers * 4 * kActivation / 2);
}

TEST(ContextParallelBytes, a_layer_exchanges_query_key_value_and_result_forward_and_back) {
  JobConfig config = config_of("gpt", 1, false, 0);
  config.parallel.cp = 2;
  std::map<std::string, int64_t> bytes = bytes_of(2, parallel_of(config, 2));
  EXPECT_EQ(bytes["all_to_all"], kLayers * 8 * (kActivation / 2) / 2);  // each rank sends half of its half
  EXPECT_EQ(bytes["all_gather"] + bytes["reduce_scatter"], 0);
}

// Keys and values have half as many heads as queries.
TEST(ContextParallelBytes, a_layer_of_llama_exchanges_fewer_keys_and_values) {
  JobConfig config = config_of("llama", 1, false, 0);
  config.parallel.cp = 2;
  std::map<std::string, int64_t> bytes = bytes_of(2, parallel_of(config, 2), llama_step(Sgd{}, false, 0));
  EXPECT_EQ(bytes["all_to_all"], kLayers * 6 * (kActivation / 2) / 2);
  EXPECT_EQ(bytes["all_gather"] + bytes["reduce_scatter"], 0);
}

// A piece of keys and of values goes to each other rank forward and back, and back what is due to them.
TEST(ContextParallelBytes, a_ring_hands_on_six_pieces_a_layer_for_each_other_rank) {
  JobConfig config = config_of("gpt", 1, false, 0);
  config.parallel.cp = 4;
  config.parallel.cp_algorithm = ContextAlgorithm::kRing;
  std::map<std::string, int64_t> bytes = bytes_of(4, parallel_of(config, 4));
  EXPECT_EQ(bytes["ring_shift"], kLayers * 6 * 3 * (kActivation / 4));
  EXPECT_EQ(bytes["all_gather"] + bytes["reduce_scatter"] + bytes["all_to_all"], 0);
}

TEST(ContextParallel, is_by_heads_where_they_divide_and_a_ring_where_not) {
  JobConfig config = config_of("llama", 1, false, 0);
  config.parallel.cp = 2;
  EXPECT_EQ(describe_context(config), "attention over cp = 2: ulysses (chosen): 2 heads over tp x cp");
  config.parallel.cp = 4;
  EXPECT_EQ(describe_context(config), "attention over cp = 4: a ring (chosen)");
  config.parallel.cp_algorithm = ContextAlgorithm::kHybrid;
  EXPECT_EQ(describe_context(config), "attention over cp = 4: rings of 2, heads over the other 2 (asked for)");
  config.parallel.cp_algorithm = ContextAlgorithm::kUlysses;
  try {
    parallel_of(config, 4);
    FAIL() << "4 ranks share 2 heads";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("model.kv_heads = 2 does not divide over parallel.tp = 1 x parallel.cp = 4 ranks; "
                                   "use parallel.cp_algorithm = 'ring'"));
  }
}

TEST(ContextParallel, the_ranks_that_share_heads_in_a_hybrid_are_those_that_are_said) {
  using enum ContextAlgorithm;
  const auto described = [](int64_t cp, int64_t degree, ContextAlgorithm algorithm = kHybrid,
                            int64_t tp = 1) -> std::string {
    JobConfig config = config_of("gpt", tp, false, 0);
    set_keys(config, {"model.heads=4"});
    config.parallel.cp = cp;
    config.parallel.cp_algorithm = algorithm;
    config.parallel.ulysses_degree = degree;
    try {
      const Parallel parallel = parallel_of(config, cp * tp);
      return to_string(parallel.mesh) + " " + describe_context(config);
    } catch (const Error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(described(8, 0),
            "dp=1,ep=1,cp=2,cph=4,tp=1 attention over cp = 8: rings of 2, heads over the other 4 (asked for)");
  EXPECT_EQ(described(8, 2),
            "dp=1,ep=1,cp=4,cph=2,tp=1 attention over cp = 8: rings of 4, heads over the other 2 (asked for)");
  EXPECT_EQ(described(4, 4), "dp=1,ep=1,cp=4,tp=1 attention over cp = 4: ulysses (asked for): 4 heads over tp x cp");
  EXPECT_EQ(described(4, 1), "dp=1,ep=1,cp=4,tp=1 attention over cp = 4: a ring (asked for)");
  EXPECT_THAT(
      described(8, 8),
      testing::HasSubstr(
          "parallel.ulysses_degree = 8 must divide parallel.cp = 8, and with parallel.tp = 1 the 4 heads of keys "
          "and values; use 1, 2, 4"));
  EXPECT_THAT(described(4, 4, kHybrid, 2), testing::HasSubstr("use 1, 2"));
  EXPECT_THAT(described(8, 3), testing::HasSubstr("use 1, 2, 4"));
  EXPECT_THAT(described(4, 2, kRing),
              testing::HasSubstr(
                  "ulysses_degree = 2 is for parallel.cp_algorithm = 'hybrid' on parallel.cp = 2 ranks or more; they "
                  "are 'ring' and 4"));
  EXPECT_THAT(described(1, 2), testing::HasSubstr("they are 'hybrid' and 1"));
  EXPECT_THAT(
      described(2, 0),
      testing::HasSubstr(
          "no part of 2 ranks or more, and fewer than all, divides them; use 'ulysses', which has all ranks share the "
          "heads, or 'ring'"));
  EXPECT_THAT(described(3, 0), testing::HasSubstr("divides them; use 'ring'"));
}

TEST(ReadyMade, too_few_ranks_or_no_experts_are_told_as_they_are) {
  const auto error = [](int64_t ranks, int64_t tp, int64_t ep, int64_t experts) {
    JobConfig config = config_of("gpt", tp, false, 0);
    config.parallel.ep = ep;
    set_keys(config, {fmt::format("model.experts={}", experts)});
    return testing_support::error_of([&] { parallel_of(config, ranks); });
  };
  EXPECT_THAT(
      error(4, 8, 1, 0),
      testing::HasSubstr("parallel.tp = 8 x cp = 1 x ep = 1 is 8 ranks, and the job has 4; start 8, or cut less"));
  EXPECT_THAT(error(6, 4, 1, 0), testing::HasSubstr("does not divide the 6 ranks of the job; start 4 or 8"));
  const auto staged = [](int64_t ranks, int64_t tp) {
    JobConfig config = config_of("gpt", tp, false, 0);
    set_keys(config, {"parallel.pp=2", "parallel.gradient_accumulation_steps=2"});
    return testing_support::error_of([&] { parallel_of(config, ranks); });
  };
  EXPECT_THAT(staged(2, 2),
              testing::HasSubstr("is 2 ranks, and each of the 2 parts of the pipeline (parallel.pp) has 1; "
                                 "start 4, or cut less"));
  EXPECT_THAT(staged(6, 2), testing::HasSubstr("start 4 or 8"));
  EXPECT_THAT(
      error(2, 1, 2, 0),
      testing::HasSubstr(
          "parallel.ep = 2 ranks share the experts of a mixture, and the model has none; set model.experts to 2 or a "
          "multiple of it, or leave parallel.ep out"));
  EXPECT_THAT(error(2, 1, 2, 3),
              testing::HasSubstr("model.experts = 3 does not divide over parallel.ep = 2 ranks; use a multiple of 2"));
}

TEST(OptimizerParallelBytes, gradients_are_scattered_once_and_weights_gathered_once_or_twice) {
  const auto sent = [](int level) {
    Parallel parallel = ready_made("", 4, 1, false, level).parallel;
    parallel.optimizer.except = {"*bias", "*ln_*", "wpe*"};
    return bytes_of(4, parallel);
  };
  const int64_t block = int64_t{16} * 48 + 16 * 16 + 2 * 16 * 64;
  const int64_t weights = 4 * (kLayers * block + 20 * 16);
  EXPECT_EQ(sent(2)["reduce_scatter"], weights * 3 / 4);
  EXPECT_EQ(sent(2)["all_gather"], weights * 3 / 4);
  EXPECT_EQ(sent(3)["reduce_scatter"], weights * 3 / 4);
  EXPECT_EQ(sent(3)["all_gather"], 2 * weights * 3 / 4);
}

}  // namespace
}  // namespace trireme::strategies_test

// Mixtures whose micro-batches depend on each other (StepFigures::is_joined): places of experts are of the whole batch,
// or the loss is.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <random>

#include "trireme/base/error.h"
#include "trireme/cost/price.h"
#include "trireme/planner/certificate/verify_certificate.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/exact/exact_certificate.h"
#include "trireme/train/plan/exact/exact_compiled.h"
#include "trireme/train/plan/exact/exact_plan.h"
#include "trireme/train/plan/parts/joined_prices.h"

namespace trireme::joined_plan_test {
namespace {

class RandomMixture {
 public:
  explicit RandomMixture(uint64_t seed) : rng_(seed) {}

  template <class T>
  T one_of(std::initializer_list<T> all) {
    return *(all.begin() + static_cast<int64_t>(rng_() % all.size()));
  }

  JobConfig job() {
    JobConfig out;
    const bool is_llama = one_of({true, false});
    const int64_t batch = one_of({4, 8, 16});
    set_published_model(out, is_llama ? "mixtral-8x7b" : "gpt2");
    if (is_llama) set_keys(out, {"model.kv_heads=2", "model.mlp_width=96"});
    set_keys(out,
             {"data.validation=0", fmt::format("model.layers={}", one_of({1, 2, 3})),
              fmt::format("model.width={}", one_of({32, 64})), "model.heads=4",
              fmt::format("model.vocabulary={}", one_of({64, 96})), fmt::format("model.experts={}", one_of({2, 4})),
              fmt::format("model.top_k={}", one_of({1, 2})), fmt::format("data.seq={}", one_of({16, 32})),
              fmt::format("train.batch={}", batch), fmt::format("train.clip={}", one_of({0, 1}))});
    if (one_of({true, false})) set_keys(out, {"train.dtype=bf16"});
    if (one_of({true, false, false})) {  // then the loss of the whole batch joins them
      set_keys(out, {fmt::format("model.expert_groups={}", batch)});
    } else if (one_of({true, false})) {
      set_keys(out, {"model.aux_loss_factor=0"});
    }
    return out;
  }

 private:
  std::mt19937_64 rng_;
};

// Of the whole job, cut so: each node of the program that ranks run.
int64_t price_of_program(const ExactPlan& plan, const std::vector<std::string>& keys, int64_t ranks) {
  JobConfig job = plan.setting.job;
  set_keys(job, keys);
  const auto model = make_model(job);
  const Assembly assembly = assembly_of(job, *model, ranks);
  JobGraphs graphs = graphs_of(assembly, ranks);
  const CompileOptions options = compile_options(assembly, graphs.parallel, ranks, 1);
  const BeforeCrews step = before_crews(std::move(graphs.step), options);
  const std::array<size_t, 1> all{0};
  const CompiledCrew crew = compile_some_crews(step.whole, programs_of_crews(step, options, all), all, options).front();
  return price_ps(crew.program, CostModel(crew.program.mesh, step.whole.rates));
}

TEST(JoinedPlan, of_random_mixtures_costs_what_partition_makes_of_it_to_the_picosecond) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    RandomMixture random(seed);
    const int64_t ranks = random.one_of({1, 2, 4});
    PlanRequest request{.job = random.job(), .ranks = ranks, .memory_bytes = int64_t{1} << 34, .top = 1000};
    const ExactPlan plan = plan_exact(request);
    ASSERT_TRUE(plan.setting.figures.is_joined) << seed;
    ASSERT_FALSE(plan.best.empty()) << seed;
    for (size_t i = 0; i < plan.best.size(); i += 1 + plan.best.size() / 4) {
      const ExactWay& way = plan.best[i];
      EXPECT_EQ(way.outer.pp, 1);
      EXPECT_EQ(way.outer.micro_batches, 1);
      EXPECT_EQ(price_of_program(plan, way.keys(plan.parts), ranks), way.price.total) << seed << ": " << way_text(way);
      ++compared;
    }
    EXPECT_NO_THROW(verify_certificate(certificate_of(plan, request))) << seed;
  }
  EXPECT_GT(compared, 15);
}

// No table bounds another one, so of each cut only the way that recomputes and slices the most is compiled.
TEST(JoinedPlan, that_fits_nowhere_looks_at_the_smallest_ways_alone) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    RandomMixture random(seed);
    PlanRequest request{.job = random.job(), .ranks = 4, .memory_bytes = 1, .top = 1};
    bool is_told = false;
    request.on_exact = [&](const ExactProgress& progress) { is_told = is_told || progress.is_nearest; };
    const ExactPlan plan = plan_exact(request);
    ASSERT_TRUE(plan.nearest) << seed;
    EXPECT_TRUE(is_told);
    EXPECT_THAT(exact_text(plan, 4, 1, "tokens"), testing::HasSubstr("only those were looked at that recompute"));

    const ExactSetting setting = exact_setting(request);
    WayTables tables(setting, 1);
    int64_t fewest = std::numeric_limits<int64_t>::max();
    for (const OuterWay& way : setting.ways(4).all()) {
      const std::optional<StageProblem> problem = divides(way) ? tables.problem_of(way) : std::nullopt;
      if (problem) fewest = std::min(fewest, fewest_bytes_of_cuts(*problem).value_or(fewest));
    }
    EXPECT_GE(plan.nearest->bytes, fewest) << seed;
    EXPECT_LE(plan.nearest->bytes, fewest + fewest / 20) << seed;
    EXPECT_LT(2 * plan.jobs_compiled, tables.pricer().jobs_compiled()) << seed;
  }
}

ModelParts parts_of_job(const JobConfig& job) {
  const auto model = make_model(job);
  return parts_of(graphs_of(assembly_of(job, *model, 1), 1).step);
}

// Which is what a plan asks about where nothing fits.
TEST(JoinedPlan, prices_a_smaller_batch_as_the_job_that_has_it) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    RandomMixture random(seed);
    const JobConfig job = random.job();
    const int64_t batch = job.train.fit.batch;
    const int64_t groups = model_of(job).cuttable().expert_groups;
    JobConfig half = job;
    half.train.fit.batch = batch / 2;
    if (groups > 1) set_keys(half, {fmt::format("model.expert_groups={}", groups / 2)});
    JoinedPrices prices(job, parts_of_job(job), 1), of_half(half, parts_of_job(half), 1);
    const PartPrices smaller = prices.of({.rows = batch / 2});
    EXPECT_EQ(smaller, of_half.of({.rows = batch / 2})) << seed;
    EXPECT_NE(smaller, prices.of({.rows = batch})) << seed;
  }
}

}  // namespace
}  // namespace trireme::joined_plan_test

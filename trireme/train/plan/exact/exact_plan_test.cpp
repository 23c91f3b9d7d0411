#include "trireme/train/plan/exact/exact_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/planner/certificate/verify_certificate.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/exact/crew_kinds.h"
#include "trireme/train/plan/exact/exact_certificate.h"
#include "trireme/train/plan/exact/exact_compiled.h"

namespace trireme::exact_plan_test {
namespace {

JobConfig gpt_of_four_layers() {
  JobConfig job;
  set_published_model(job, "gpt2");
  set_keys(job,
           {"model.layers=4", "model.width=64", "model.heads=4", "data.seq=32", "train.batch=16", "data.validation=0"});
  return job;
}

ExactPlan exact(int64_t ranks, size_t top = 3, int64_t memory_bytes = int64_t{1} << 34) {
  return plan_exact({.job = gpt_of_four_layers(), .ranks = ranks, .memory_bytes = memory_bytes, .top = top});
}

// Two blocks with an MLP, then three with experts.
JobConfig deepseek_of_five_layers() {
  JobConfig job;
  set_published_model(job, "deepseek-v2-lite");
  set_keys(job, {"model.layers=5", "model.dense_layers=2", "model.width=64", "model.heads=4", "model.key_rank=16",
                 "model.head_size=16", "model.rotary_size=8", "model.value_size=16", "model.mlp_width=96",
                 "model.experts=4", "model.shared_experts=1", "model.expert_width=32", "model.top_k=2",
                 "model.vocabulary=128", "data.seq=32", "train.batch=16", "data.validation=0"});
  return job;
}

// Its layers are numbered modules, but not by a key of how many there are.
TEST(ExactPlan, of_a_model_without_a_number_of_blocks_is_refused_with_the_cure) {
  JobConfig job;
  set_keys(job, {"model.kind=mlp", "data.kind=synthetic", "train.batch=16", "data.validation=0"});
  try {
    plan_exact({.job = job, .ranks = 4, .memory_bytes = int64_t{1} << 34, .top = 1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("a model of kind 'mlp' has no number of blocks (model.layers); use "
                                                 "--search compiled"));
  }
}

// What it keeps of one job for the next changes no price.
TEST(PartPricer, says_the_same_whatever_it_has_priced_before) {
  PlanRequest request{.job = deepseek_of_five_layers(), .ranks = 8, .memory_bytes = int64_t{1} << 34};
  set_keys(request.job, {"model.aux_loss_factor=0", "model.expert_groups=16"});
  const ExactSetting setting = exact_setting(request);
  PartPricer used(setting.job, setting.parts, setting.figures, 1);
  const InnerWay ways[] = {{.rows = 2},
                           {.tp = 2, .rows = 2},
                           {.tp = 2, .vocabulary = true, .rows = 2},
                           {.tp = 2, .sp = true, .rows = 2, .recompute = WayRecompute::kFull},
                           {.tp = 2, .sp = true, .rows = 1, .recompute = WayRecompute::kSelective, .kept_slices = true},
                           {.ep = 2, .rows = 1},
                           {.tp = 2, .ep = 2, .dp = 2, .zero = 1, .rows = 1},
                           {.tp = 2, .ep = 2, .dp = 2, .rows = 1, .keep = Tier::kHost},
                           {.rows = 4},
                           {.tp = 2, .rows = 2}};
  for (const InnerWay& way : ways) {
    PartPricer fresh(setting.job, setting.parts, setting.figures, 1);
    const auto by_fresh = fresh.compiled(way);
    EXPECT_EQ(used.compiled(way), by_fresh) << way.way().text();
    EXPECT_TRUE(by_fresh) << fresh.refusal();
  }
}

TEST(ExactPlan, counts_every_way_once_and_proves_the_best) {
  const ExactPlan found = exact(4, 5);

  const OuterLedger& l = found.ledger;
  EXPECT_EQ(l.do_not_divide + l.memory_least + l.bound + l.slower + l.memory + l.needless + l.solved, l.ways);
  ASSERT_EQ(found.best.size(), 5U);
  for (size_t i = 0; i < found.best.size(); ++i) {
    EXPECT_GE(found.best[i].price.total, found.bound_ps);
    if (i > 0) {
      EXPECT_LE(found.best[i - 1].price.total, found.best[i].price.total);
    }
  }
  EXPECT_THAT(exact_text(found, 4, 16 * 32, "tokens"), testing::HasSubstr("proven over the tables"));
  const PlanFile file = plan_file(found, 4);
  EXPECT_EQ(to_string(parse_plan_file(to_string(file))), to_string(file));
}

TEST(ExactPlan, says_what_the_bytes_of_each_stage_are_for) {
  const ExactPlan plan = exact(4, 2000);
  bool has_stages = false;
  for (const ExactWay& way : plan.best) {
    const std::vector<ByteKinds> kinds = kinds_of_crews(way.problem, way.begins);
    ASSERT_EQ(kinds.size(), way.crew_bytes.size());
    for (size_t crew = 0; crew < kinds.size(); ++crew) {
      int64_t sum = 0;
      for (const auto& [name, bytes] : kinds[crew]) {
        EXPECT_GE(bytes, 0) << name;
        sum += bytes;
      }
      EXPECT_EQ(sum, way.crew_bytes[crew]) << way_text(way);
    }
    has_stages = has_stages || kinds.size() > 1;
  }
  EXPECT_TRUE(has_stages);
  EXPECT_THAT(exact_text(plan, 4, 512, "tokens"),
              testing::ContainsRegex("memory.* MiB.*\n  parameters and state +[0-9.]+ MiB\n"));
}

// What Megatron-LM's users found by hand (Narayanan et al., 2021): tensor parallelism inside a host of eight A100s,
// pipelines between hosts.
TEST(ExactPlan, of_GPT3_keeps_tensor_parallelism_inside_a_host) {
  JobConfig job;
  set_published_model(job, "gpt3-175b");
  set_keys(job, {"data.seq=2048", "train.batch=1536", "train.dtype=bf16",
                 "parallel.machine=" TRIREME_SOURCE_DIR "/machines/a100_80gbx1120.toml"});

  const ExactPlan plan = plan_exact({.job = job, .ranks = 1024, .memory_bytes = 80'000'000'000, .top = 3});

  ASSERT_EQ(plan.best.size(), 3U);
  EXPECT_TRUE(plan.is_proven);
  for (const ExactWay& way : plan.best) {
    EXPECT_GT(way.outer.inner.tp, 1) << way_text(way);
    EXPECT_LE(way.outer.inner.tp, 8) << way_text(way);
    EXPECT_GT(way.outer.pp, 1) << way_text(way);
  }
}

TEST(ExactPlan, that_is_stopped_says_what_it_has_and_what_is_proven) {
  const ExactPlan whole = exact(4, 1);
  const ExactPlan stopped =
      plan_exact({.job = gpt_of_four_layers(), .ranks = 4, .memory_bytes = int64_t{1} << 34, .top = 1, .most_jobs = 3});
  EXPECT_TRUE(whole.is_proven);
  EXPECT_FALSE(stopped.is_proven);
  EXPECT_GT(stopped.ledger.open, 0);
  EXPECT_LT(stopped.jobs_compiled, whole.jobs_compiled);
  EXPECT_LE(stopped.least_ps, whole.best.front().price.total);
  EXPECT_THAT(exact_text(stopped, 4, 16 * 32, "tokens"), testing::HasSubstr("--most-jobs"));
}

// Too many ways to prove which is the best: tables of ways that are cut by one axis say which are likely.
TEST(ExactPlan, that_cannot_be_proven_is_near_the_best) {
  PlanRequest request{.job = deepseek_of_five_layers(), .ranks = 4, .memory_bytes = int64_t{1} << 34, .top = 1};
  set_keys(request.job, {"model.aux_loss_factor=0", "model.expert_groups=16"});
  const ExactPlan whole = plan_exact(request);
  request.most_jobs = 14;  // of 15 cuts of a stage
  const ExactPlan guessed = plan_exact(request);
  EXPECT_TRUE(whole.is_proven);
  EXPECT_FALSE(guessed.is_proven);
  EXPECT_LT(guessed.jobs_compiled, whole.jobs_compiled);
  ASSERT_EQ(guessed.best.size(), 1U);
  EXPECT_LE(guessed.best.front().price.total, whole.best.front().price.total * 5 / 4);
}

TEST(ExactPlan, says_that_nothing_fits) {
  const ExactPlan found = exact(2, 3, 1000);
  EXPECT_TRUE(found.best.empty());
  EXPECT_THAT(exact_text(found, 2, 16 * 32, "tokens"), testing::HasSubstr("no way of cutting it fits"));
  ASSERT_TRUE(found.nearest);
  EXPECT_FALSE(found.nearest->ranks);
  EXPECT_FALSE(found.nearest->batch);
  EXPECT_THAT(exact_text(found, 2, 16 * 32, "tokens"), testing::HasSubstr("not with more ranks, up to 2048"));
}

// The jobs that say what would fit are counted by themselves, and so are those that say with which changes.
TEST(ExactPlan, that_fits_nowhere_is_stopped_while_it_looks_for_what_would_fit) {
  PlanRequest request{.job = gpt_of_four_layers(), .ranks = 2, .memory_bytes = 1000, .top = 1};
  const ExactPlan whole = plan_exact(request);
  ASSERT_GT(whole.jobs_compiled, 40);
  constexpr int64_t kOfAQuestion = 4;  // a way's tables, of which the last one that is asked for may need as many
  for (const int64_t most : {1, 4, 16, 40}) {
    request.most_jobs = most;
    const ExactPlan stopped = plan_exact(request);
    ASSERT_TRUE(stopped.nearest) << most;
    EXPECT_LT(stopped.jobs_compiled, most + kOfAQuestion) << most;
    EXPECT_FALSE(stopped.nearest->knows_batch && stopped.nearest->knows_ranks) << most;
    EXPECT_TRUE(stopped.nearest->bytes == 0 || stopped.nearest->bytes == whole.nearest->bytes) << most;
    EXPECT_THAT(exact_text(stopped, 2, 16 * 32, "tokens"), testing::HasSubstr("--most-jobs")) << most;
  }
}

// Each change that is named makes a plan, and of memory a byte less makes none.
TEST(ExactPlan, names_changes_with_which_something_fits) {
  PlanRequest request{.job = gpt_of_four_layers(), .ranks = 2, .memory_bytes = 1000, .top = 1};
  const int64_t fewest = plan_exact(request).nearest->bytes;
  request.memory_bytes = fewest;
  EXPECT_EQ(plan_exact(request).best.size(), 1U);
  request.memory_bytes = fewest - 1;
  const ExactPlan found = plan_exact(request);
  EXPECT_TRUE(found.best.empty());
  ASSERT_TRUE(found.nearest);
  EXPECT_EQ(found.nearest->bytes, fewest);
  int64_t sum = 0;
  for (const auto& [name, bytes] : found.nearest->kinds) sum += bytes;
  EXPECT_EQ(sum, fewest);
  ASSERT_TRUE(found.nearest->ranks);
  PlanRequest more = request;
  more.ranks = found.nearest->ranks->to;
  EXPECT_EQ(more.ranks, 4);
  EXPECT_EQ(plan_exact(more).best.size(), 1U);
  const std::string text = exact_text(found, 2, 16 * 32, "tokens");
  EXPECT_THAT(text, testing::HasSubstr("more ranks         4, by --"));

  // Half the batch and so on: what is said of them is what planning for them gives.
  for (int64_t batch = 8; batch >= 1; batch /= 2) {
    PlanRequest less = request;
    set_keys(less.job, {fmt::format("train.batch={}", batch)});
    const bool fits = !plan_exact(less).best.empty();
    const bool is_named = found.nearest->batch && found.nearest->batch->to == batch;
    EXPECT_EQ(fits, is_named) << batch;
    if (fits) break;
  }
  if (!found.nearest->batch) {
    EXPECT_THAT(text, testing::HasSubstr("not with half the batch"));
  }
}

// Micro-batches of a mixture whose groups are of several depend on each other; those of one sample each do not.
TEST(ExactPlan, has_no_pipeline_where_its_micro_batches_depend_on_each_other) {
  for (const bool is_joined : {true, false}) {
    PlanRequest request{.job = deepseek_of_five_layers(), .ranks = 4, .memory_bytes = int64_t{1} << 34, .top = 2000};
    set_keys(request.job, {"model.aux_loss_factor=0", fmt::format("model.expert_groups={}", is_joined ? 1 : 16)});
    const ExactPlan plan = plan_exact(request);
    size_t pipelines = 0;
    for (const ExactWay& way : plan.best) {
      if (way.outer.pp == 1) continue;
      ++pipelines;
      if (pipelines > 3) continue;
      ExactPlan one = plan;
      one.best = {way};
      EXPECT_TRUE(compile_best(one, request).front().cost) << way_text(way);
    }
    EXPECT_EQ(pipelines == 0, is_joined);
    EXPECT_EQ(plan.setting.figures.is_joined, is_joined);
    const char* const key = "model.expert_groups be a multiple of train.batch";
    EXPECT_EQ(exact_text(plan, 4, 16 * 32, "tokens").find(key) != std::string::npos, is_joined);
    // The batch is cut over ep, too: a rank can have a single row of it, or its part of the whole.
    EXPECT_TRUE(std::ranges::any_of(plan.best, [&](const ExactWay& way) {
      return way.outer.inner.ep == 4 && way.outer.inner.rows == (is_joined ? 4 : 1);
    }));
  }
}

// All ways of a job with the tables that price them, which do not depend on how much memory a rank has.
struct Priced {
  explicit Priced(const PlanRequest& request)
      : setting(exact_setting(request)), ways(setting.ways(request.ranks)), tables(setting, 1) {
    for (const OuterWay& way : ways.all()) {
      if (!divides(way)) continue;
      if (auto problem = tables.problem_of(way)) problems.push_back(std::move(*problem));
    }
  }
  ExactSetting setting;
  OuterWays ways;
  WayTables tables;
  std::vector<StageProblem> problems;
};

// -1: none fits.
int64_t least_step(std::vector<StageProblem>& problems, int64_t memory) {
  int64_t least = -1;
  for (StageProblem& problem : problems) {
    problem.memory = memory;
    const auto cut = best_cut(problem);
    if (!cut) continue;
    const int64_t total = price_of_cut(problem, *cut).total;
    if (least < 0 || total < least) least = total;
  }
  return least;
}

// With one of the memories a whole plan is made, with the others a search goes over the tables that are there.
TEST(ExactPlan, that_bounds_lead_to_is_the_best_of_all_ways_priced_one_by_one) {
  const std::pair<int64_t, std::vector<std::string>> jobs[] = {
      {4, {"model.width=128", "train.batch=24", "train.dtype=bf16"}},
      {4, {"model.layers=3", "model.width=32", "data.seq=16"}},
      {16, {"model.layers=2", "model.heads=2", "train.batch=32"}},
      {4, {"model.layers=8", "model.width=32", "data.seq=16", "model.vocabulary=64"}}};
  int fit = 0, none = 0;
  for (size_t i = 0; i <= std::size(jobs); ++i) {
    const bool is_gpt = i < std::size(jobs);
    const int64_t ranks = is_gpt ? jobs[i].first : 4;
    PlanRequest request{
        .job = is_gpt ? gpt_of_four_layers() : deepseek_of_five_layers(), .ranks = ranks, .threads = 1, .top = 1};
    if (is_gpt) set_keys(request.job, jobs[i].second);
    request.memory_bytes = int64_t{1} << 34;
    Priced all(request);
    const int64_t memories[] = {34, 26, 24, 18};
    for (const int64_t memory : memories) {
      request.memory_bytes = all.setting.memory_bytes = int64_t{1} << memory;
      const int64_t least = least_step(all.problems, request.memory_bytes);
      const OuterResult searched = all.tables.search(all.ways, ranks, 1);
      ASSERT_EQ(searched.best.empty(), least < 0) << ranks << " ranks, 2^" << memory;
      ++(least < 0 ? none : fit);
      if (least >= 0) {
        EXPECT_EQ(searched.best.front().price.total, least) << ranks << " ranks, 2^" << memory;
      }
      if (memory != memories[i % std::size(memories)]) continue;
      const ExactPlan planned = plan_exact(request);
      ASSERT_EQ(planned.best.empty(), least < 0) << ranks << " ranks, 2^" << memory;
      if (least >= 0) {
        EXPECT_EQ(planned.best.front().price.total, least) << ranks << " ranks, 2^" << memory;
      }
    }
  }
  EXPECT_GT(fit, 5);
  EXPECT_GT(none, 2);
}

// By how much of the compiled job the tables are off.
struct Off {
  double time = 0, bytes = 0;
};

Off off_by(JobConfig job, const ExactPlan& plan, const ExactWay& way, int64_t ranks) {
  set_keys(job, way.keys(plan.parts));
  const auto model = make_model(job);
  const Assembly assembly = assembly_of(job, *model, ranks);
  JobGraphs graphs = graphs_of(assembly, ranks);
  const Compiled step = compile(std::move(graphs.step), compile_options(assembly, graphs.parallel, ranks, 1));
  const WayCost cost = cost_of(step);
  const double predicted = static_cast<double>(way.price.total) * 1e-12;
  return {predicted / cost.step_s - 1,
          static_cast<double>(std::ranges::max(way.crew_bytes)) / static_cast<double>(cost.most_bytes()) - 1};
}

// Against virtual time and the arena of the whole job, compiled by the plan's keys. The tables count collectives as if
// nothing hid them: what is left is that, above all where ZeRO 2 scatters the gradients of each micro-batch. Pipelines
// with several stages a crew are priced by their timetables, and end with the sum of a shared table's gradients. Here
// nearly all parameters are the table that the head reads, too.
TEST(ExactPlan, the_tables_are_near_what_the_compiled_job_takes) {
  int of_several = 0;  // micro-batches, of which each scatters its gradients
  for (const int64_t ranks : {2, 4}) {
    const ExactPlan plan = exact(ranks, 150);
    std::vector<std::string> kinds;
    double sum = 0;
    for (const ExactWay& way : plan.best) {
      const InnerWay& inner = way.outer.inner;
      const bool is_one = way.outer.micro_batches == 1;
      const std::string kind =
          fmt::format("pp{} tp{} dp{} zero{} v{} vocabulary{} {}", way.outer.pp, inner.tp, inner.dp, inner.zero,
                      way.outer.virtual_stages, inner.vocabulary ? 1 : 0, is_one ? "one" : "several");
      if (std::ranges::find(kinds, kind) != kinds.end()) continue;
      kinds.push_back(kind);
      of_several += !is_one && inner.zero >= 2 ? 1 : 0;
      const Off off = off_by(gpt_of_four_layers(), plan, way, ranks);
      sum += off.time;
      const bool scatters_each = inner.zero == 2 && !is_one;
      EXPECT_GT(off.time, way.outer.virtual_stages > 1 ? -0.025 : 0) << kind;
      EXPECT_LT(off.time, scatters_each ? 0.13 : way.outer.pp > 1 ? 0.06 : 0.031) << kind;
      EXPECT_GT(off.bytes, -0.01) << kind;
      EXPECT_LT(off.bytes, 0.6) << kind;  // the most with one micro-batch and ZeRO 3
      if (way.outer.pp == 1 && (inner.zero == 0 || (inner.zero >= 2 && !is_one))) {
        EXPECT_LT(off.bytes, 0.02) << kind;
      }
      RecordProperty(kind, fmt::format("time {:.3f} bytes {:.3f}", off.time, off.bytes));
    }
    EXPECT_GE(kinds.size(), 3U);
    EXPECT_LT(sum, 0.035 * static_cast<double>(kinds.size()));
  }
  EXPECT_GE(of_several, 2);
}

// Where stages take about equally long, and updates much of a step. By a hundredth they are below: the sum of a shared
// table's gradients is on its way when all else is done.
TEST(ExactPlan, the_tables_are_near_what_pipelines_take) {
  for (const char* const clip : {"train.clip=1", "train.clip=0"}) {
    JobConfig job = gpt_of_four_layers();
    set_keys(job, {"model.layers=2", "model.width=128", "model.vocabulary=256", clip});
    const ExactPlan plan = plan_exact({.job = job, .ranks = 2, .memory_bytes = int64_t{1} << 34, .top = 5'000});
    int pipelines = 0;
    for (const ExactWay& way : plan.best) {
      if (way.outer.pp == 1) continue;
      ++pipelines;
      const Off off = off_by(job, plan, way, 2);
      EXPECT_GT(off.time, -0.015) << clip << " " << way_text(way);
      EXPECT_LT(off.time, 0.05) << clip << " " << way_text(way);
    }
    EXPECT_GT(pipelines, 20);
  }
}

TEST(ExactPlan, the_ways_that_are_shown_can_be_compiled_and_then_fit_or_do_not) {
  ExactPlan plan = exact(2, 3);
  const PlanRequest request{.job = gpt_of_four_layers(), .ranks = 2, .top = 3};
  const std::vector<CompiledWay> compiled = compile_best(plan, request);
  ASSERT_EQ(compiled.size(), 3U);
  int64_t most = 0;
  for (const CompiledWay& way : compiled) {
    ASSERT_TRUE(way.cost) << way.refusal;
    EXPECT_TRUE(way.fits);
    EXPECT_GT(way.cost->step_s, 0);
    most = std::max(most, way.cost->most_bytes());
  }
  EXPECT_THAT(compiled_text(plan, {.ways = compiled}), testing::Not(testing::HasSubstr("does not fit")));
  plan.memory_bytes = most - 1;
  const std::vector<CompiledWay> narrow = compile_best(plan, request);
  EXPECT_TRUE(std::ranges::any_of(narrow, [](const CompiledWay& way) { return !way.fits; }));
  EXPECT_THAT(compiled_text(plan, {.ways = narrow}), testing::HasSubstr(" MiB (tables +"));
  EXPECT_THAT(compiled_text(plan, {.ways = narrow}), testing::HasSubstr(": it does not fit\n"));
}

// First of each other cut, and for so few ranks then of each slices of state, with sp and without, as far as it is
// worth compiling.
TEST(ExactPlan, has_the_best_way_of_each_other_kind_where_it_is_asked_for) {
  const PlanRequest request{
      .job = gpt_of_four_layers(), .ranks = 4, .memory_bytes = int64_t{1} << 34, .top = 1, .other_cuts = 3};
  const ExactPlan plan = plan_exact(request);
  const ExactPlan all = exact(4, 1000);
  const auto kind_of = [](const ExactWay& way) {
    const InnerWay& inner = way.outer.inner;
    return std::tuple(way.outer.pp, inner.tp, inner.cp, inner.ep, inner.dp, inner.zero, inner.sp);
  };
  std::map<decltype(kind_of(plan.best.front())), int64_t> least;
  const auto best_ps = static_cast<double>(all.best.front().price.total);
  for (const ExactWay& way : all.best) {
    if (static_cast<double>(way.price.total) <= kWorthCompiling * best_ps) least.emplace(kind_of(way), way.price.total);
  }
  ASSERT_GE(least.size(), 8U);
  ASSERT_EQ(plan.ways(), std::min<size_t>(1 + 3 + 24, least.size()));
  std::set<std::array<int64_t, 5>> cuts;
  for (size_t i = 0; i < plan.ways(); ++i) {
    const InnerWay& inner = plan.way(i).outer.inner;
    const bool is_new = cuts.insert({plan.way(i).outer.pp, inner.tp, inner.cp, inner.ep, inner.dp}).second;
    EXPECT_TRUE(is_new || i != 1) << "the first of the others is of another cut";
    EXPECT_EQ(plan.way(i).price.total, least.at(kind_of(plan.way(i))));
    least.erase(kind_of(plan.way(i)));
  }
  for (const auto& [kind, ps] : least) EXPECT_GE(ps, plan.others.back().price.total);
  const Certificate certificate = certificate_of(plan, request);
  EXPECT_EQ(certificate.best.size(), 1U);
  EXPECT_NO_THROW(verify_certificate(certificate)) << "others are no part of what is proven";
}

TEST(ExactPlan, with_stages_is_a_plan_that_a_job_can_follow) {
  const ExactPlan plan = exact(4, 200);
  size_t staged = 0;
  while (staged < plan.best.size() && plan.best[staged].outer.pp == 1) ++staged;
  ASSERT_LT(staged, plan.best.size());
  const PlanFile file = plan_file(plan, 4, staged);
  JobConfig job = gpt_of_four_layers();
  set_keys(job, file.keys);
  EXPECT_NO_THROW(check_plan(file, job, 4));
  JobConfig by_rules = job;
  set_keys(by_rules, {"parallel.ops=['lm_head = [-, -], [-, -]']"});
  EXPECT_THROW(check_plan(file, by_rules, 4), Error);
}

}  // namespace
}  // namespace trireme::exact_plan_test

#include "trireme/train/plan/auto/auto_plan.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/comm.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/exact/exact_compiled.h"
#include "trireme/train/plan/plan_text.h"

namespace trireme::auto_plan_test {
namespace {

using testing::HasSubstr;

JobConfig small_gpt(const std::vector<std::string>& keys = {}) {
  JobConfig job;
  set_published_model(job, "gpt2");
  set_keys(job, {"model.layers=4", "model.width=32", "model.heads=4", "data.seq=16", "train.batch=16",
                 "data.validation=0", "train.steps=1", "parallel.mode=auto_parallel", "parallel.search=exact"});
  set_keys(job, keys);
  return job;
}

AutoPlan plan_of(const std::vector<std::string>& keys, int64_t ranks = 2, const std::vector<std::string>& said = {}) {
  return auto_plan({.job = small_gpt(keys), .ranks = ranks, .said = said});
}

std::string error_of(const std::vector<std::string>& keys, int64_t ranks = 2) {
  try {
    plan_of(keys, ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(AutoPlan, is_what_trireme_plan_finds) {
  const JobConfig job = small_gpt();
  PlanRequest request{.job = job, .ranks = 4, .most_jobs = kUsualMostJobs};
  request.other_cuts = request.top;
  const ExactPlan found = plan_exact(request);
  const CompiledPlan compiled = compiled_plan(found, request);

  const AutoPlan plan = auto_plan({.job = job, .ranks = 4});
  EXPECT_EQ(plan.file, to_string(plan_file(found, request, compiled)));
  EXPECT_EQ(plan.way, compiled.way(found).text());
  EXPECT_THAT(plan.text, HasSubstr("plan of the exact search for 4 ranks by the rates of 'this_host'"));
  EXPECT_THAT(plan.text, HasSubstr("  proven by the tables of "));
  const auto lines = std::ranges::count(plan.text, '\n');
  EXPECT_GE(lines, 5);
  EXPECT_LE(lines, 10);
}

TEST(AutoPlan, is_a_job_that_says_how_it_is_cut_and_takes_the_bytes_that_are_planned) {
  for (const std::vector<std::string>& keys : {std::vector<std::string>{}, {"parallel.pp=2"}, {"parallel.tp=2"}}) {
    const AutoPlan plan = plan_of(keys, 4);
    EXPECT_FALSE(is_left_to_plan(plan.job));
    EXPECT_EQ(plan.job.parallel.mode, Mode::kSemiAuto);
    const auto model = make_model(plan.job);
    const Assembly assembly = assembly_of(plan.job, *model, 4);
    JobGraphs graphs = graphs_of(assembly, 4);
    const Compiled made = compile(std::move(graphs.step), compile_options(assembly, graphs.parallel, 4, 1));
    const PlanFile file = parse_plan_file(plan.file);
    ASSERT_TRUE(file.compiled.has_value());
    EXPECT_EQ(file.compiled->arena_bytes, largest_plan(made).arena().bytes);
    check_plan(file, plan.job, 4);
  }
}

TEST(AutoPlan, keeps_what_the_job_says_of_its_cuts) {
  const AutoPlan piped =
      plan_of({"parallel.pp=2", "parallel.zero=1", "train.recompute=selective", "parallel.schedule=zb-h1"}, 4);
  EXPECT_EQ(piped.job.parallel.pp, 2);
  EXPECT_EQ(piped.job.parallel.zero.level, 1);
  EXPECT_EQ(piped.job.parallel.schedule, "zb-h1");
  EXPECT_TRUE(piped.job.train.passes.recompute.rows);
  EXPECT_THAT(piped.text, HasSubstr("  kept, as the job says it: pp=2 zero=1 schedule=zb-h1 recompute=selective\n"));

  const AutoPlan cut = plan_of({"parallel.tp=2", "parallel.sp=true", "parallel.gradient_accumulation_steps=4"}, 4);
  EXPECT_EQ(cut.job.parallel.tp, 2);
  EXPECT_TRUE(cut.job.parallel.sp);
  EXPECT_EQ(cut.job.parallel.gradient_accumulation_steps, 4);
}

// At their defaults keys ask for nothing, unless somebody has typed them.
TEST(AutoPlan, keeps_defaults_that_are_said) {
  EXPECT_THAT(plan_of({}, 2, {"parallel.pp", "parallel.zero", "parallel.virtual_stages", "train.lr"}).text,
              HasSubstr("  kept, as the job says it: pp=1 zero=0\n"));
  EXPECT_THAT(plan_of({"parallel.pp=2"}, 2, {"parallel.pp", "train.recompute"}).text,
              HasSubstr("  kept, as the job says it: pp=2 recompute=none\n"));
}

TEST(AutoPlan, refuses_what_no_way_has) {
  EXPECT_THAT(error_of({"parallel.tp=3"}),
              testing::AllOf(HasSubstr("no way has tp=3; of tp there are 1, 2"),
                             HasSubstr("as the job is to keep tp=3, with parallel.search = 'exact'")));
  EXPECT_THAT(error_of({"parallel.pp=2", "parallel.tp=2"}),
              HasSubstr("plan: no way over 2 ranks has all of pp=2 tp=2; leave some out"));
  EXPECT_THAT(error_of({"parallel.interleave=2"}),
              HasSubstr("plan: parallel.interleave = 2 beside parallel.search = 'exact', which looks at no such ways"));
  EXPECT_THAT(error_of({"parallel.fully_use_devices=true"}), HasSubstr("plan: parallel.fully_use_devices = true"));
  EXPECT_THAT(error_of({"parallel.mesh=dp=2"}), HasSubstr("plan: parallel.mesh says how the model is cut"));
  EXPECT_THAT(error_of({"parallel.ops=[\"h.0.mlp.c_fc = [dp, -, -], [-, -]\"]"}),
              HasSubstr("plan: parallel.ops says how the model is cut"));
  EXPECT_THAT(error_of({"parallel.sum_micro_batch_losses=true"}), HasSubstr("and with them the loss"));
  EXPECT_THAT(error_of({"parallel.device_num=4"}), HasSubstr("parallel.device_num = 4 but the job has 2 ranks"));
  EXPECT_THAT(error_of({"parallel.rates=rates.toml"}), HasSubstr("name a machine's file with parallel.machine"));
  EXPECT_THAT(error_of({"parallel.search=recursive_programming"}),
              HasSubstr("auto_plan: the job is of the mode auto_parallel and the search recursive_programming"));
}

TEST(AutoPlan, says_what_would_fit_where_nothing_does) {
  EXPECT_THAT(error_of({"parallel.device_memory=20KB", "parallel.search=compiled", "model.layers=1", "parallel.pp=2"}),
              testing::AllOf(HasSubstr("over 2 ranks with pp=2 works: 'gpt2' takes "),
                             HasSubstr("parallel.device_memory allows 20KB")));
  EXPECT_THAT(error_of({"parallel.device_memory=20KB", "parallel.host_memory=1KB"}),
              testing::AllOf(HasSubstr("plan: no way of cutting 'gpt2' over 2 ranks fits in 19.5 KiB on each rank"),
                             HasSubstr("the smallest, "), HasSubstr(" on the fullest rank")));
}

// With every way compiled, of which some cut each op by itself.
TEST(AutoPlan, by_compiling_is_what_trireme_plan_finds) {
  const JobConfig job = small_gpt({"parallel.search=compiled", "model.layers=1", "train.recompute=full"});
  const auto is_asked = [](const Way& way) { return way.recompute == WayRecompute::kFull; };
  const PlanRequest request{.job = job, .ranks = 2, .is_asked = is_asked};
  const JobPlan found = plan_job(request);
  size_t looked_at = 0;
  const AutoPlan plan = auto_plan({.job = job, .ranks = 2, .on_way = [&](size_t, size_t) { ++looked_at; }});
  EXPECT_EQ(plan.file, to_string(plan_file(found, request)));
  EXPECT_EQ(static_cast<int64_t>(looked_at), found.ledger.ways);
  EXPECT_THAT(plan.text, HasSubstr("plan of all ways, each compiled, for 2 ranks by the rates of 'this_host'"));
  EXPECT_THAT(plan.text, HasSubstr("  kept, as the job says it: recompute=full\n"));
  EXPECT_THAT(plan.text, HasSubstr(fmt::format("  of {} ways {} fit, and none of these takes less\n", found.ledger.ways,
                                               found.ledger.fit)));
}

TEST(AutoPlan, is_made_once_for_all_ranks) {
  const JobConfig job = small_gpt();
  const AutoPlan alone = auto_plan({.job = job, .ranks = 2});
  std::vector<AutoPlan> plans(2);
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    plans[static_cast<size_t>(world.rank())] = auto_plan({.job = job, .ranks = 2}, &world, 0);
  });
  EXPECT_NE(plans[0].text, "");
  EXPECT_EQ(plans[1].text, "");
  for (const AutoPlan& plan : plans) {
    EXPECT_EQ(plan.file, alone.file);
    EXPECT_EQ(to_toml(plan.job), to_toml(alone.job));
  }
}

TEST(AutoPlan, is_refused_by_a_rank_of_another_job) {
  std::vector<std::string> errors(2, "no error");
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    try {
      auto_plan({.job = small_gpt({rank == 0 ? "model.width=32" : "model.width=64"}), .ranks = 2}, &world);
    } catch (const Error& error) {
      errors[rank] = error.what();
    }
  });
  EXPECT_EQ(errors[0], "no error");
  EXPECT_THAT(errors[1], HasSubstr("the plan is for a training step other than that of 'gpt2'"));
}

TEST(AutoPlan, is_for_nothing_that_is_compiled_without_it) {
  const JobConfig job = small_gpt();
  const auto model = make_model(job);
  const auto assemble = [&] { assembly_of(job, *model, 2); };
  EXPECT_THAT(
      [&] {
        try {
          assemble();
        } catch (const Error& error) {
          return std::string(error.what());
        }
        return std::string("no error");
      }(),
      HasSubstr("go on with the job that auto_plan"));
}

}  // namespace
}  // namespace trireme::auto_plan_test

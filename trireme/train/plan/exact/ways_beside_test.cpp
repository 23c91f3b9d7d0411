// What the exact search compiles beside the best by its tables, where one of these is the fastest.
#include "trireme/train/plan/exact/ways_beside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/file.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/exact/exact_compiled.h"
#include "trireme/train/plan/questions/what_if.h"

namespace trireme::ways_beside_test {
namespace {

using testing::HasSubstr;

// A laptop for each two ranks.
Machine laptops(double bytes_per_s_between) {
  Machine out = Machine::this_host();
  out.name = "laptops";
  out.hosts = 4;
  out.devices_per_host = 2;
  out.levels = {{"host", 2, 1.5e-6, 5e9}, {"cable", 8, 50e-6, bytes_per_s_between}};
  out.flops_per_s = {{"f32", 60e9}, {"bf16", 60e9}};
  out.memory_bytes_per_s = 5.5e9;
  out.memory_bytes = 2'000'000'000;
  out.achievable = 0.85;
  out.op_rates = {};
  return out;
}

class WaysBeside : public testing::Test {
 protected:
  PlanRequest request(int64_t ranks, double bytes_per_s_between, std::vector<std::string> keys) const {
    const std::string machine = files_ / "laptops.toml";
    write_machine(laptops(bytes_per_s_between), machine);
    PlanRequest out{.ranks = ranks};
    set_published_model(out.job, "gpt2");
    set_keys(out.job, {"model.layers=4", "model.width=256", "model.heads=4", "model.vocabulary=256", "data.seq=128",
                       "data.validation=0", "train.steps=1", "parallel.machine=" + machine});
    set_keys(out.job, keys);
    out.other_cuts = out.top;
    return out;
  }

 private:
  TempDirectory files_;
};

double step_of(const PlanRequest& request, const PlanFile& file) {
  JobConfig job = request.job;
  override_keys(job, file.keys);
  const auto model = make_model(job);
  const Assembly assembly = assembly_of(job, *model, request.ranks);
  JobGraphs graphs = graphs_of(assembly, request.ranks);
  const Compiled made =
      compile(std::move(graphs.step), compile_options(assembly, graphs.parallel, request.ranks, request.threads));
  return cost_of(made).step_s;
}

// What all ranks exchange over the cable takes longer than to compute it on the two of each laptop.
TEST_F(WaysBeside, what_auto_finds_is_the_plan_where_it_is_the_fastest) {
  const PlanRequest slow = request(4, 5e6, {"train.batch=4", "model.layers=2"});
  const ExactPlan plan = plan_exact(slow);
  const CompiledPlan compiled = compiled_plan(plan, slow);
  ASSERT_TRUE(compiled.is_beside());
  EXPECT_TRUE(compiled.way(plan).is_searched);
  for (const CompiledWay& way : compiled.ways) {
    if (way.fits) EXPECT_GT(way.cost->step_s, compiled.cost().step_s);
  }
  EXPECT_EQ(compiled.cost().step_s, plan_job(slow).best.front().cost.step_s) << "no way that compiles takes less";
  EXPECT_THAT(compiled_text(plan, compiled), HasSubstr("that no table knows (what --auto finds"));

  const PlanFile file = parse_plan_file(to_string(plan_file(plan, slow, compiled)));
  EXPECT_THAT(file.keys, testing::Contains("parallel.mode=auto_parallel"));
  EXPECT_GT(file.ledger.ways, plan.ledger.ways);
  EXPECT_EQ(std::llround(step_of(slow, file) * 1e12), file.step_ps);
  JobConfig job = slow.job;
  override_keys(job, file.keys);
  EXPECT_NO_THROW(check_plan(file, job, 4));

  const WayRule by_flags = parse_way_rule("auto=false", example_ways(plan.setting, slow));
  PlanRequest asked = slow;
  asked.is_asked = [&](const Way& way) { return by_flags.is_kept_by(way); };
  const ExactPlan kept = plan_exact(asked);
  const std::optional<CompiledPlan> of_kept = compiled_plan(kept, asked), of_plan = compiled;
  ASSERT_TRUE(of_kept->has_any());
  EXPECT_FALSE(of_kept->way(kept).is_searched);
  EXPECT_THAT(why_not_text({plan, of_plan}, {kept, of_kept}, by_flags),
              HasSubstr("why not auto=false: the best way that keeps it, " + of_kept->way(kept).text() + ", takes "));
}

TEST_F(WaysBeside, nothing_but_what_auto_finds_can_be_asked_for) {
  PlanRequest asked = request(2, 1e8, {"train.batch=4", "model.layers=2"});
  asked.is_asked = [](const Way& way) { return way.is_searched; };
  const ExactPlan plan = plan_exact(asked);
  EXPECT_EQ(plan.ways(), 0U);
  const CompiledPlan compiled = compiled_plan(plan, asked);
  ASSERT_TRUE(compiled.is_beside());
  EXPECT_EQ(compiled.beside.ledger.ways, std::ssize(ways_of(asked)));
  asked.ranks = kMostRanksOfBestCompiled * 2;
  EXPECT_EQ(compile_beside(plan, asked).ledger.ways, 0);
}

// Its tables count the gathers of ZeRO 3 as if nothing hid them.
TEST_F(WaysBeside, a_way_whose_communication_is_hidden_is_the_plan_though_its_tables_say_that_others_are_faster) {
  const PlanRequest cables = request(8, 0.25e9, {"train.batch=32"});
  const ExactPlan plan = plan_exact(cables);
  const CompiledPlan compiled = compiled_plan(plan, cables);
  ASSERT_TRUE(compiled.which.has_value());
  const ExactWay& chosen = plan.way(*compiled.which);
  EXPECT_EQ(chosen.outer.inner.zero, 3) << way_text(chosen);
  EXPECT_GT(static_cast<double>(chosen.price.total), 1.1 * static_cast<double>(plan.best.front().price.total));
  EXPECT_LT(compiled.cost().step_s, 0.95 * compiled.ways.front().cost->step_s);
  const auto is_faster_by_tables = [&](const ExactWay& way) {
    return way.outer.pp == chosen.outer.pp && way.outer.inner.tp == chosen.outer.inner.tp &&
           way.price.total < chosen.price.total;
  };
  EXPECT_TRUE(std::ranges::any_of(plan.others, is_faster_by_tables)) << "it is not the best of its cut";
}

TEST_F(WaysBeside, a_way_that_fits_is_found_though_its_tables_say_that_it_does_not) {
  PlanRequest scarce = request(4, 5e9, {"train.batch=16"});
  scarce.memory_bytes = 50 << 20;
  const ExactPlan plan = plan_exact(scarce);
  const CompiledPlan compiled = compiled_plan(plan, scarce);
  ASSERT_TRUE(compiled.which.has_value());
  const ExactWay& chosen = plan.way(*compiled.which);
  EXPECT_GT(std::ranges::max(chosen.crew_bytes), scarce.memory_bytes) << way_text(chosen);
  EXPECT_LE(compiled.cost().most_bytes(), scarce.memory_bytes);
}

// By its tables the smallest way takes more than a rank has, and compiled it takes less.
TEST_F(WaysBeside, where_nothing_fits_by_the_tables_what_may_fit_is_compiled) {
  PlanRequest scarce = request(4, 5e9, {"train.batch=16"});
  scarce.is_asked = [](const Way& way) {
    return way.pp == 1 && way.micro_batches == 1 && way.zero == 3 && !way.is_searched;
  };
  scarce.memory_bytes = 1000;
  const ExactPlan hopeless = plan_exact(scarce);
  ASSERT_TRUE(hopeless.nearest);
  EXPECT_EQ(hopeless.ways(), 0U);
  const CompiledPlan of_hopeless = compiled_plan(hopeless, scarce);
  EXPECT_FALSE(of_hopeless.has_any());
  EXPECT_NO_THROW(require_any(hopeless, of_hopeless));
  EXPECT_EQ(chosen_text(hopeless, of_hopeless), "");
  EXPECT_THAT(exact_text(hopeless, 4, 16 * 128, "tokens"), HasSubstr("\nno way of cutting it fits"));

  scarce.memory_bytes = hopeless.nearest->bytes * 19 / 20;
  const ExactPlan plan = plan_exact(scarce);
  EXPECT_TRUE(plan.best.empty());
  EXPECT_THAT(exact_text(plan, 4, 16 * 128, "tokens"), HasSubstr("\nby the tables no way of cutting it fits"));
  const CompiledPlan compiled = compiled_plan(plan, scarce);
  ASSERT_TRUE(compiled.which.has_value());
  const ExactWay& chosen = plan.way(*compiled.which);
  EXPECT_FALSE(plan.fits_by_tables(chosen)) << way_text(chosen);
  EXPECT_LE(compiled.cost().most_bytes(), scarce.memory_bytes);
  EXPECT_THAT(compiled_text(plan, compiled), HasSubstr("What may fit all the same,\ncompiled as training"));
  EXPECT_THAT(chosen_text(plan, compiled),
              HasSubstr("is the plan: " + chosen.outer.way().text() + "\nnothing is proven"));
  for (const CompiledWay& way : compiled.ways) {
    if (way.fits) EXPECT_GE(way.cost->step_s, compiled.cost().step_s);
  }

  const PlanFile file = parse_plan_file(to_string(plan_file(plan, scarce, compiled)));
  ASSERT_TRUE(file.compiled);
  EXPECT_EQ(file.bound_ps, plan.bound_ps) << "the tables prove nothing of it";
  EXPECT_LT(file.bound_ps, file.compiled->step_ps);
  EXPECT_EQ(std::llround(step_of(scarce, file) * 1e12), file.compiled->step_ps);

  scarce.other_cuts = 0;
  EXPECT_EQ(plan_exact(scarce).ways(), 0U) << "nobody asked for others";
}

TEST_F(WaysBeside, micro_batches_of_more_rows_than_tables_have_are_compiled) {
  const PlanRequest wide = request(2, 5e9, {"train.batch=64", "model.layers=2", "model.width=64", "data.seq=16"});
  const ExactPlan plan = plan_exact(wide);
  const CompiledPlan compiled = compiled_plan(plan, wide);
  const auto has_more = [](const PlannedWay& each) { return !each.way.is_searched && each.way.micro_batches == 1; };
  EXPECT_TRUE(std::ranges::any_of(as_job_plan(plan, compiled).best, has_more));
  EXPECT_TRUE(has_no_table({.micro_batches = 1}, plan.setting, 2));
  EXPECT_FALSE(has_no_table({.micro_batches = 4}, plan.setting, 2));
  EXPECT_FALSE(has_no_table({.micro_batches = 3}, plan.setting, 2)) << "it does not divide";
  EXPECT_LT(compiled.cost().step_s, compiled.ways.front().cost->step_s);
}

}  // namespace
}  // namespace trireme::ways_beside_test

// Plans that keep what the backward pass reads in slices on ranks that have the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/cost/price.h"
#include "trireme/planner/certificate/verify_certificate.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/exact/exact_certificate.h"
#include "trireme/train/plan/exact/exact_compiled.h"
#include "trireme/train/plan/exports/export_way.h"
#include "trireme/train/plan/questions/what_if.h"
#include "trireme/train/plan/ways/way_rule.h"

namespace trireme::plan_slices_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kMuch = int64_t{1} << 32;

// Activations of 64 KiB and more, beside few parameters.
PlanRequest request_for(int64_t ranks, int64_t memory_bytes, const std::vector<std::string>& keys = {}) {
  PlanRequest out{.ranks = ranks, .memory_bytes = memory_bytes, .top = 1};
  set_published_model(out.job, "gpt2");
  set_keys(out.job, {"model.layers=2", "model.width=64", "model.heads=4", "model.vocabulary=128", "data.seq=256",
                     "train.batch=4", "data.validation=0"});
  set_keys(out.job, keys);
  return out;
}

struct PricedWays {
  explicit PricedWays(const PlanRequest& request)
      : setting(exact_setting(request)), ways(setting.ways(request.ranks)), tables(setting, 1) {
    for (size_t i = 0; i < ways.size(); ++i) {
      if (!ways.has(i) || !divides(ways.at(i))) continue;
      if (auto problem = tables.problem_of(ways.at(i))) problems.emplace_back(i, std::move(*problem));
    }
  }
  // The least step of those that are asked for, and what it takes; -1: none fits.
  template <class Asked>
  int64_t least_step(int64_t memory, Asked is_asked) {
    int64_t least = -1;
    for (auto& [i, problem] : problems) {
      if (!is_asked(ways.at(i))) continue;
      problem.memory = memory;
      const auto cut = best_cut(problem);
      if (!cut) continue;
      const int64_t total = price_of_cut(problem, *cut).total;
      if (least < 0 || total < least) least = total;
    }
    return least;
  }
  ExactSetting setting;
  OuterWays ways;
  WayTables tables;
  std::vector<std::pair<size_t, StageProblem>> problems;
};

// Memories from too little to enough; of some a whole plan with its certificate is made.
TEST(PlanSlices, the_best_is_the_best_of_all_ways_priced_one_by_one) {
  int sliced = 0, whole = 0, none = 0;
  PlanRequest request = request_for(2, kMuch);
  PricedWays all(request);
  const auto any = [](const OuterWay&) { return true; };
  for (int64_t memory = int64_t{1} << 20; memory < int64_t{1} << 26; memory += memory / 10) {
    SCOPED_TRACE(memory);
    request.memory_bytes = all.setting.memory_bytes = memory;
    const int64_t least = all.least_step(memory, any);
    const int64_t without = all.least_step(memory, [](const OuterWay& way) { return !way.inner.kept_slices; });
    const OuterResult found = all.tables.search(all.ways, 2, 1);
    ASSERT_EQ(found.best.empty(), least < 0);
    if (least < 0) {
      ++none;
      continue;
    }
    EXPECT_EQ(found.best.front().price.total, least);
    const bool is_sliced = all.ways.at(found.best.front().way).inner.kept_slices;
    EXPECT_EQ(is_sliced, without < 0 || least < without);
    ++(is_sliced ? sliced : whole);
    if (!is_sliced || sliced > 1) continue;
    const ExactPlan plan = plan_exact(request);
    EXPECT_EQ(plan.best.front().price.total, least);
    const Certificate certificate = certificate_of(plan, request);
    EXPECT_NO_THROW(verify_certificate(parse_certificate(to_string(certificate))));
    EXPECT_NO_THROW(CertifiedJob(request).check(certificate));
  }
  EXPECT_GT(sliced, 0);
  EXPECT_GT(whole, 1);
  EXPECT_GT(none, 1);
}

// One price: what slices add to what ranks exchange is, in integers, what they add to it in the compiled program.
TEST(PlanSlices, what_they_move_by_the_tables_is_what_they_move_in_the_compiled_program) {
  int differ = 0;  // all but sp with all computed again, which leaves nothing to slice
  for (const bool sp : {false, true}) {
    for (const WayRecompute recompute : kWayRecompute) {
      PlanRequest request = request_for(
          2, kMuch,
          {"model.kind=llama", "model.kv_heads=2", "model.mlp_width=160", "model.tied=false", "train.clip=0"});
      const ExactSetting setting = exact_setting(request);
      WayTables tables(setting, 1);
      int64_t moved_whole = 0, kept_whole = 0, in_whole_program = 0;
      for (const bool kept_slices : {false, true}) {
        SCOPED_TRACE(fmt::format("sp {}, recompute {}, kept_slices {}", sp, to_string(recompute), kept_slices));
        const OuterWay way{.inner = {.tp = 2, .sp = sp, .rows = 4, .recompute = recompute, .kept_slices = kept_slices}};
        const std::optional<StageProblem> problem = tables.problem_of(way);
        ASSERT_TRUE(problem) << tables.pricer().refusal();
        int64_t moved = 0, kept = 0;
        for (const PartPrice& part : problem->parts) {
          moved += part.moving_forward + part.moving_backward + part.sync;
          kept += part.kept;
        }
        const Compiled compiled = compile_way(request, way.way());
        const CostModel model(compiled.program().mesh, compiled.rates);
        const std::vector<int64_t> prices = node_prices_ps(compiled.program(), model);
        int64_t in_program = 0;
        for (size_t i = 0; i < prices.size(); ++i) {
          if (is_communication(def_of(compiled.program().graph.nodes()[i]))) in_program += prices[i];
        }
        if (kept_slices) {
          EXPECT_GE(moved, moved_whole);
          differ += moved > moved_whole && kept < kept_whole ? 1 : 0;
          EXPECT_EQ(moved - moved_whole, in_program - in_whole_program);
          EXPECT_LE(kept, kept_whole);
        }
        in_whole_program = in_program;
        moved_whole = moved;
        kept_whole = kept;
      }
    }
  }
  EXPECT_EQ(differ, 5);
}

// The most memory with which nothing fits while all that is kept lies whole.
int64_t too_little_for_whole(PricedWays& all) {
  int64_t fewest = kMuch;
  for (const auto& [i, problem] : all.problems) {
    const auto bytes = fewest_bytes_of_cuts(problem);
    if (bytes && !all.ways.at(i).inner.kept_slices) fewest = std::min(fewest, *bytes);
  }
  return fewest - 1;
}

TEST(PlanSlices, a_plan_says_it_and_a_job_follows_it) {
  PlanRequest request = request_for(2, kMuch, {"parallel.recompute_slice_activation=true"});
  EXPECT_THAT(cuts_left_out(request.job), testing::Contains("parallel.recompute_slice_activation = true"));
  PricedWays all(request);
  request.memory_bytes = too_little_for_whole(all);
  const ExactPlan plan = plan_exact(request);
  ASSERT_EQ(plan.best.size(), 1U);
  EXPECT_TRUE(plan.best.front().outer.inner.kept_slices);
  EXPECT_THAT(exact_text(plan, 2, 4 * 256, "tokens"), HasSubstr(" --set parallel.recompute_slice_activation=true"));
  const PlanFile file = plan_file(plan, 2);
  EXPECT_THAT(to_string(file), HasSubstr("set parallel.recompute_slice_activation=true\n"));
  JobConfig job = request.job;
  set_keys(job, file.keys);
  EXPECT_NO_THROW(check_plan(file, job, 2));
  const std::vector<CompiledWay> compiled = compile_best(plan, request);
  ASSERT_TRUE(compiled.front().cost) << compiled.front().refusal;

  const Certificate certificate = certificate_of(plan, request);
  EXPECT_EQ(check_certified_plan(certificate, file), 0U);
  EXPECT_THAT(proven_text(certificate), HasSubstr(" kept_slices=1"));
  CertifiedJob compiled_again(request);
  const auto edited = [&](auto change) -> std::string {
    Certificate other = certificate;
    change(other);
    try {
      verify_certificate(parse_certificate(to_string(other)));
      check_certified_plan(other, file);
      compiled_again.check(other);
    } catch (const Error& error) {
      return error.what();
    }
    return "verified";
  };
  EXPECT_EQ(edited([](Certificate&) {}), "verified");
  EXPECT_NE(edited([](Certificate& c) { c.best.front().way.cut.kept_slices = false; }), "verified");
  EXPECT_THAT(edited([](Certificate& c) {
                for (CertifiedTable& table : c.prices) {
                  if (table.cut.kept_slices) table.parts[1].moving_backward = 0;
                }
              }),
              HasSubstr("below their bounds"));
  EXPECT_THAT(edited([](Certificate& c) {
                for (CertifiedTable& table : c.prices) {
                  if (table.cut.kept_slices) ++table.parts[1].sync;
                }
              }),
              testing::AnyOf(HasSubstr("by its prices, not "), HasSubstr("are not what compiling it gives")));
}

TEST(PlanSlices, compiled_ways_have_them_only_where_they_are_needed) {
  PlanRequest request = request_for(2, kMuch);
  request.is_asked = [](const Way& way) {
    return way.tp == 2 && way.schedule == WaySchedule::k1F1B && way.micro_batches == 1 &&
           way.recompute == WayRecompute::kNone && !way.sp && way.zero == 0;
  };
  const JobPlan much = plan_job(request);
  ASSERT_EQ(much.best.size(), 1U);
  EXPECT_FALSE(much.best.front().way.kept_slices);
  EXPECT_EQ(much.ledger.needless, 1);
  request.memory_bytes = much.best.front().cost.most_bytes() - 1;
  const JobPlan plan = plan_job(request);
  ASSERT_EQ(plan.best.size(), 1U);
  const Way& way = plan.best.front().way;
  EXPECT_TRUE(way.kept_slices);
  const WayRule rule = parse_way_rule("kept_slices=false", ways_of(request));
  PlanRequest asked = request;
  asked.is_asked = [&](const Way& each) { return rule.is_kept_by(each) && request.is_asked(each); };
  EXPECT_THAT(why_not_text(plan, plan_job(asked), rule), HasSubstr("no way that keeps it can be taken"));
  EXPECT_THROW(export_way("torchtitan", request.job, way, 2), Error);
  EXPECT_THROW(export_way("megatron", request.job, way, 2), Error);
  Way full = way;
  full.recompute = WayRecompute::kFull;
  EXPECT_THAT(export_way("megatron", request.job, full, 2), HasSubstr("--distribute-saved-activations\n"));
}

}  // namespace
}  // namespace trireme::plan_slices_test

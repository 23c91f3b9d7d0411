#include "trireme/train/plan/questions/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/train/job/published_models.h"

namespace trireme::what_if_test {
namespace {

JobConfig tiny_gpt() {
  JobConfig job;
  set_published_model(job, "gpt2");
  set_keys(job,
           {"model.layers=1", "model.width=32", "model.heads=4", "data.seq=16", "train.batch=8", "data.validation=0"});
  return job;
}

PlanRequest request_for(std::string_view rule, const PlanRequest& of) {
  PlanRequest out = of;
  out.is_asked = [parsed = parse_way_rule(rule, ways_of(of.job, of.ranks))](const Way& way) {
    return parsed.is_kept_by(way);
  };
  return out;
}

std::string error_of_rule(std::string_view rule) {
  try {
    parse_way_rule(rule, ways_of(tiny_gpt(), 2));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(WayRule, keeps_what_it_names_and_leaves_the_rest_open) {
  const std::vector<Way> ways = ways_of(tiny_gpt(), 2);
  const WayRule rule = parse_way_rule("tp=2,  micro-batches=4", ways);
  EXPECT_EQ(rule.text(), "tp=2 micro_batches=4");
  EXPECT_TRUE(rule.is_kept_by({.tp = 2, .sp = true, .micro_batches = 4, .recompute = WayRecompute::kFull}));
  EXPECT_FALSE(rule.is_kept_by({.tp = 2, .micro_batches = 2}));
  EXPECT_FALSE(rule.is_kept_by({.micro_batches = 4}));
  // Each op of a searched way is cut by itself: it has no tp.
  EXPECT_FALSE(parse_way_rule("tp=1", ways).is_kept_by({.is_searched = true}));
  EXPECT_TRUE(parse_way_rule("auto=true", ways).is_kept_by({.is_searched = true}));
}

TEST(WayRule, that_names_nothing_known_is_refused_with_what_can_be_named) {
  EXPECT_EQ(error_of_rule("fsdp=2"),
            "a rule for ways: there is no 'fsdp'; name pp, tp, sp, vocabulary, cp, ep, zero, micro_batches, schedule, "
            "virtual_stages, recompute, kept_slices, keep, state, update, auto");
  EXPECT_EQ(error_of_rule("tp=3"), "a rule for ways: no way has tp=3; of tp there are 1, 2");
  EXPECT_EQ(error_of_rule("ep=2"), "a rule for ways: no way has ep=2; of ep there is only 1");
  EXPECT_EQ(error_of_rule("tp"), "a rule for ways: 'tp' is not of the form name=value, like tp=2");
  EXPECT_EQ(error_of_rule("tp=2 tp=2"), "a rule for ways: 'tp' appears twice");
  EXPECT_EQ(error_of_rule(" ,"),
            "a rule for ways names nothing; name pp, tp, sp, vocabulary, cp, ep, zero, micro_batches, schedule, "
            "virtual_stages, recompute, kept_slices, keep, state, update, auto, like tp=2");
}

TEST(WhyNot, shows_the_best_way_that_keeps_a_rule_beside_the_chosen_one) {
  const PlanRequest request{.job = tiny_gpt(), .ranks = 2};
  const JobPlan chosen = plan_job(request);
  ASSERT_FALSE(chosen.best.empty());
  for (const char* text : {"pp=2", "tp=2", "zero=0 tp=1"}) {
    const JobPlan kept = plan_job(request_for(text, request));
    const WayRule rule = parse_way_rule(text, ways_of(request.job, 2));
    ASSERT_FALSE(kept.best.empty()) << text;
    EXPECT_TRUE(rule.is_kept_by(kept.best.front().way)) << text;
    EXPECT_GE(kept.best.front().cost.step_s, chosen.best.front().cost.step_s) << text;
    EXPECT_LT(kept.ledger.ways, chosen.ledger.ways);
    if (rule.is_kept_by(chosen.best.front().way)) continue;
    const std::string out = why_not_text(chosen, kept, rule);
    EXPECT_THAT(out, testing::HasSubstr("the best way that keeps it, " + kept.best.front().way.text() + ", takes"));
    EXPECT_THAT(
        out, testing::HasSubstr(fmt::format("{:>+12.3f} ms\n  forward",
                                            1e3 * (kept.best.front().cost.step_s - chosen.best.front().cost.step_s))));
  }
}

TEST(WhyNot, says_by_how_much_it_does_not_fit_and_what_does_not_divide) {
  const PlanRequest request{.job = tiny_gpt(), .ranks = 2};
  const JobPlan chosen = plan_job(request);
  const auto answer = [&](const char* rule, const PlanRequest& of) {
    return why_not_text(chosen, plan_job(request_for(rule, of)), parse_way_rule(rule, ways_of(of.job, 2)));
  };
  PlanRequest small = request;
  small.memory_bytes = 1 << 20;
  EXPECT_THAT(answer("tp=1 pp=1 zero=0 auto=false", small), testing::HasSubstr("  the smallest, "));
  small.memory_bytes = chosen.best.front().cost.memory.front().persistent * 3 + (1 << 20);
  const std::string text = answer("tp=1 pp=1 zero=0 recompute=none micro_batches=1", small);
  EXPECT_THAT(text, testing::AnyOf(testing::HasSubstr("more than the"), testing::HasSubstr("the best way")));
  PlanRequest odd = request;
  set_keys(odd.job, {"train.batch=3"});
  EXPECT_THAT(answer("tp=1 pp=1 micro_batches=4", odd),
              testing::ContainsRegex("do not go with the model, the batch or the ranks: .*3"));
  EXPECT_THAT(answer("pp=2 tp=2", request), testing::HasSubstr("no way has all of it"));
}

TEST(Sensitivities, plan_again_on_machines_that_are_a_little_different) {
  Machine machine = Machine::this_host();
  machine.devices_per_host = 2;
  machine.levels = {{"host", 2, 1e-6, 1e8}};  // so slow that links and arithmetic count, and memory's rate does not
  machine.flops_per_s = {{"f32", 1e9}};
  machine.memory_bytes_per_s = 1e12;
  const std::string path = testing::TempDir() + "/what_if_machine.toml";
  write_machine(machine, path);
  PlanRequest request{.job = tiny_gpt(), .ranks = 2};
  set_keys(request.job, {"model.vocabulary=256"});
  std::vector<int64_t> memories;
  const auto planned = [&](const PlanRequest& of) {
    const JobPlan plan = plan_job(of);
    memories.push_back(plan.memory_bytes);
    return best_of(plan);
  };
  const auto error = [&] {
    try {
      sensitivities(request, machine, 1, planned);
    } catch (const Error& refused) {
      return std::string(refused.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error(), testing::HasSubstr("none is given; name one with --machine"));
  set_keys(request.job, {"parallel.machine=" + path});
  const JobPlan plan = plan_job(request);
  const std::vector<Sensitivity> all = sensitivities(request, plan.machine, plan.memory_bytes, planned);
  ASSERT_EQ(all.size(), 5U);
  const auto step = [&](size_t which) { return all[which].best.value().step_s; };
  const double now = plan.best.at(0).cost.step_s;
  EXPECT_EQ(all[0].what, "all links half as fast");
  EXPECT_GT(step(0), now);
  EXPECT_LT(step(1), step(0));
  EXPECT_GE(step(2), now);  // half the memory
  EXPECT_EQ(memories.at(2), plan.memory_bytes / 2);
  EXPECT_LE(step(3), now);
  EXPECT_LT(step(4), now);  // arithmetic
  EXPECT_THAT(sensitivities_text(best_of(plan), all), testing::HasSubstr("arithmetic twice as fast"));
}

}  // namespace
}  // namespace trireme::what_if_test

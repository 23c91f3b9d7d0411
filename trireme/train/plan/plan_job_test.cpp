#include "trireme/train/plan/plan_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/comm.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/plan_text.h"

namespace trireme::plan_job_test {
namespace {

JobConfig small_gpt() {
  JobConfig job;
  set_published_model(job, "gpt2");
  set_keys(job,
           {"model.layers=2", "model.width=32", "model.heads=4", "data.seq=16", "train.batch=8", "data.validation=0"});
  return job;
}

JobPlan plan(int64_t ranks, int64_t memory_bytes = 0) {
  return plan_job({.job = small_gpt(), .ranks = ranks, .memory_bytes = memory_bytes});
}

void expect_adds_up(const PlanLedger& ledger) {
  EXPECT_EQ(ledger.fit + ledger.memory + ledger.memory_least + ledger.needless + ledger.do_not_divide, ledger.ways);
}

template <class Fn>
std::string error_of_plan(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlanJob, finds_the_ways_that_fit_in_order_of_their_time) {
  const JobPlan found = plan(2);

  expect_adds_up(found.ledger);
  ASSERT_EQ(found.best.size(), 3U);
  EXPECT_GT(found.ledger.fit, 10);
  EXPECT_GT(found.ledger.needless, 10);
  for (size_t i = 0; i < found.best.size(); ++i) {
    EXPECT_GE(found.best[i].cost.step_s, found.bound_s);
    EXPECT_LE(found.best[i].cost.most_bytes(), found.memory_bytes);
    const WayCost& cost = found.best[i].cost;
    EXPECT_NEAR(cost.forward_s + cost.backward_s + cost.again_s + cost.update_s + cost.exposed_s + cost.waiting_s,
                cost.step_s, 1e-9 * cost.step_s)
        << found.best[i].way.text();
    if (i > 0) EXPECT_LE(found.best[i - 1].cost.step_s, found.best[i].cost.step_s);
  }
  const std::string text = plan_text(found, 2, 8 * 16, "tokens");
  EXPECT_THAT(text, testing::HasSubstr("best: "));
  EXPECT_THAT(text, testing::HasSubstr(fmt::format("{} ways: {} fit", found.ledger.ways, found.ledger.fit)));
}

// What a rank that trains by the plan holds, to the byte.
TEST(PlanJob, predicts_the_bytes_of_training) {
  for (const int ranks : {2, 4}) {
    const JobPlan found = plan_job({.job = small_gpt(), .ranks = ranks, .top = 40});
    std::vector<std::string> kinds;  // one plan each of a pipeline, of tensor parallelism, of what is searched
    for (const PlannedWay& each : found.best) {
      const std::string kind = each.way.is_searched ? "auto" : each.way.pp > 1 ? "pp" : each.way.tp > 1 ? "tp" : "dp";
      if (std::ranges::find(kinds, kind) != kinds.end()) continue;
      kinds.push_back(kind);
      JobConfig job = small_gpt();
      set_keys(job, each.way.keys());
      const auto model = make_model(job);
      const Assembly assembly = assembly_of(job, *model, ranks);

      comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
        const Session session = session_of(assembly, &world, nullptr);
        const auto crew = static_cast<size_t>(session.plan().crew);
        EXPECT_EQ(session.plan().arena().bytes, each.cost.memory[crew].arena) << kind;
        EXPECT_EQ(session.plan().arena().persistent, each.cost.memory[crew].persistent) << kind;
      });
    }
    EXPECT_GE(kinds.size(), 2U) << ranks << " ranks";
  }
}

TEST(PlanJob, within_less_memory_finds_a_slower_way_or_says_what_is_missing) {
  const JobPlan all = plan(2);
  const int64_t less = all.best.front().cost.most_bytes() - 1;

  const JobPlan fits = plan(2, less);
  const JobPlan none = plan(2, 100000);

  expect_adds_up(fits.ledger);
  ASSERT_FALSE(fits.best.empty());
  EXPECT_LE(fits.best.front().cost.most_bytes(), less);
  EXPECT_GE(fits.best.front().cost.step_s, all.best.front().cost.step_s);
  expect_adds_up(none.ledger);
  EXPECT_TRUE(none.best.empty());
  EXPECT_GT(none.ledger.memory_least, 0);
  EXPECT_THAT(plan_text(none, 2, 8 * 16, "tokens"),
              testing::HasSubstr("no way of cutting it fits in 0.1 MiB on each rank"));
}

TEST(PlanJob, says_why_ways_are_refused_where_none_is_too_large) {
  PlanRequest request{.job = small_gpt(), .ranks = 2};
  set_keys(request.job, {"train.batch=3"});
  request.is_asked = [](const Way& way) { return way.pp == 1 && way.tp == 1 && way.cp == 1 && !way.is_searched; };
  const std::string text = plan_text(plan_job(request), 2, 1, "tokens");
  EXPECT_THAT(text, testing::HasSubstr("no way of cutting it goes with the model, the batch and the ranks\n"));
  EXPECT_THAT(text, testing::HasSubstr("does not divide over 2 ranks"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("too much")));
}

TEST(PlanJob, under_a_budget_has_ways_whose_state_lies_on_the_host) {
  PlanRequest request{.job = small_gpt(), .ranks = 1};
  set_keys(request.job, {"model.layers=4", "model.vocabulary=64"});
  JobConfig job = request.job;
  const JobPlan all = plan_job(request);
  const int64_t persistent = all.best.front().cost.memory.front().persistent;
  set_keys(request.job, {fmt::format("parallel.device_memory={}B", persistent * 4 / 5)});
  const JobPlan plan = plan_job(request);
  expect_adds_up(plan.ledger);
  EXPECT_EQ(plan.ledger.memory_least, 0) << "the state leaves the device";
  ASSERT_FALSE(plan.best.empty());
  EXPECT_LE(plan.best.front().cost.most_bytes(), persistent * 4 / 5);
  const PlanFile file = plan_file(plan, request);
  EXPECT_THAT(to_string(file), testing::HasSubstr("set parallel.device_memory="));
  set_keys(job, parse_plan_file(to_string(file)).keys);
  EXPECT_EQ(error_of_plan([&] { check_plan(file, job, 1); }), "no error");
  EXPECT_EQ(keys_of_places(job), keys_of_places(request.job));
}

TEST(PlanJob, of_a_step_longer_than_any_run_is_refused) {
  Machine machine = Machine::this_host();
  machine.devices_per_host = machine.levels[0].devices = 8;
  machine.levels[0].bytes_per_s = 1e-9;
  PlanRequest request{.job = small_gpt(), .ranks = 2};
  request.job.parallel.machine = testing::TempDir() + "/plan_job_slow_links.toml";
  write_machine(machine, request.job.parallel.machine);
  request.is_asked = [](const Way& way) { return way.tp == 2; };
  const JobPlan plan = plan_job(request);
  EXPECT_TRUE(plan.best.empty());
  EXPECT_THAT(plan.ledger.first_refusal, testing::HasSubstr("takes more than 100 days"));
}

TEST(PlanJob, of_one_rank_and_of_a_model_without_ready_made_cuts) {
  EXPECT_FALSE(plan(1).best.empty());
  JobConfig job;
  set_published_model(job, "resnet50");
  set_keys(job, {"model.blocks=[1, 1]", "model.stem=8", "data.image=[32, 32, 3]", "train.batch=8"});

  const JobPlan found = plan_job({.job = job, .ranks = 2});

  expect_adds_up(found.ledger);
  EXPECT_FALSE(found.best.empty());
}

// What a way sets is what its keys say in words.
TEST(Way, sets_what_its_keys_say) {
  constexpr UpdatePlace kPlaces[] = {{.state = Tier::kHost},
                                     {.state = Tier::kDisk},
                                     {.state = Tier::kHost, .update = Tier::kHost},
                                     {.state = Tier::kDisk, .update = Tier::kHost}};
  const std::vector<Way> all = ways_of(small_gpt(), 8, {kPlaces, kPlaces + 4});
  for (size_t i = 0; i < all.size(); i += all.size() / 40) {
    Way way = all[i];
    way.keep = i % 3 == 0 ? Tier::kDevice : i % 3 == 1 ? Tier::kHost : Tier::kDisk;
    way.virtual_stages = way.pp > 1 ? 2 : 1;
    JobConfig by_keys = small_gpt(), set = by_keys;
    set_keys(by_keys, way.keys());
    way.set(set);
    EXPECT_EQ(to_toml(set), to_toml(by_keys)) << way.text();
  }
}

TEST(PlanJob, refuses_a_job_that_says_how_it_is_cut) {
  JobConfig job = small_gpt();
  set_keys(job, {"parallel.mesh=dp=2"});
  EXPECT_EQ(error_of_plan([&] { plan_job({.job = job, .ranks = 2}); }),
            "plan: parallel.mesh says how the model is cut, which is what is planned; leave it out");
}

TEST(PlanJob, refuses_more_ranks_than_the_machine_has_devices) {
  Machine machine = Machine::this_host();
  machine.devices_per_host = machine.levels[0].devices = 8;
  const std::string path = testing::TempDir() + "/plan_job_eight.toml";
  write_machine(machine, path);
  JobConfig job = small_gpt();
  set_keys(job, {"parallel.machine=" + path});
  EXPECT_EQ(error_of_plan([&] { plan_job({.job = job, .ranks = 16}); }),
            "plan: 16 ranks, but the machine 'this_host' has 8 devices; plan for fewer ranks, or for a larger machine");
  EXPECT_EQ(error_of_plan([&] { plan_job({.job = job, .ranks = 2}); }), "no error");
}

TEST(PlanFile, reads_back_what_it_wrote) {
  const PlanRequest request{.job = small_gpt(), .ranks = 2};
  const std::string text = to_string(plan_file(plan_job(request), request));

  EXPECT_EQ(to_string(parse_plan_file(text)), text);
  std::string elsewhere = text;  // as editors on other systems end lines
  for (size_t at = 0; (at = elsewhere.find('\n', at)) != std::string::npos; at += 2) elsewhere.insert(at, 1, '\r');
  EXPECT_EQ(to_string(parse_plan_file(elsewhere)), text);
}

TEST(PlanFile, refuses_what_is_none) {
  const PlanFile file{.ranks = 2,
                      .machine = "here",
                      .graph = "1",
                      .keys = Way{.tp = 2}.keys(),
                      .ledger = {.ways = 3, .needless = 1, .fit = 2}};
  const std::string text = to_string(file);
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string out = text;
    out.replace(out.find(from), from.size(), to);
    return error_of_plan([&] { parse_plan_file(out); });
  };
  EXPECT_EQ(error_of_plan([&] { parse_plan_file(text); }), "no error");
  EXPECT_EQ(changed("plan 1", "plan 2"),
            "plan, line 1: 'trireme plan 2' is not 'trireme plan 1': this is not a plan, or one of another version");
  EXPECT_EQ(changed("ways=3", "ways=4"), "plan, line 22: the counts do not add up to the ways");
  EXPECT_EQ(changed("ways=3", "ways=-3"), "plan, line 22: '-3' is not a whole number of 0 or more");
  EXPECT_EQ(changed("graph 1\n", ""), "plan, line 21: the line 'graph' is missing");
  EXPECT_EQ(changed("graph 1", "ranks 1"), "plan, line 4: 'ranks' appears twice");
  EXPECT_EQ(changed("set parallel.tp=2", "set tp"), "plan, line 11: 'tp' is not of the form key=value");
  EXPECT_EQ(changed("set parallel.tp", "set train.lr"),
            "plan, line 11: 'train.lr' is not a key that says how a model is cut");
  EXPECT_EQ(changed("set parallel.tp", "set parallel.pp"), "plan, line 11: 'parallel.pp' appears twice");
  EXPECT_EQ(changed("set parallel.tp=2\n", ""), "plan: the line 'set parallel.tp=...' is missing");
  EXPECT_EQ(error_of_plan([&] { parse_plan_file(""); }), "plan: it is empty");
  EXPECT_EQ(changed("graph 1", "grahp 1"), "plan, line 4: 'grahp' is not a line that plans have");
}

TEST(PlanFile, is_for_one_training_step_on_so_many_ranks) {
  const PlanRequest request{.job = small_gpt(), .ranks = 2};
  const PlanFile file = plan_file(plan_job(request), request);
  JobConfig job = small_gpt();
  set_keys(job, {"parallel.tp=4", "parallel.zero=2"});  // which the plan's keys replace
  set_keys(job, file.keys);
  EXPECT_EQ(error_of_plan([&] { check_plan(file, job, 2); }), "no error");
  JobConfig plain = without_cuts(small_gpt());
  set_keys(plain, file.keys);
  EXPECT_EQ(to_toml(job), to_toml(plain));
  EXPECT_EQ(error_of_plan([&] { check_plan(file, job, 4); }),
            "the plan is for 2 ranks and the job has 4; start 2 ranks, or plan again");
  JobConfig by_rules = job;
  set_keys(by_rules, {"parallel.ops=['lm_head = [-, -], [-, -]']"});
  EXPECT_EQ(error_of_plan([&] { check_plan(file, by_rules, 2); }),
            "plan: parallel.ops says how the model is cut, and so does the file of --plan; leave one of them out");
  for (const char* key : {"parallel.optimizer_on=host", "parallel.home=[\"*/state = host\"]"}) {
    JobConfig elsewhere = job;
    set_keys(elsewhere, {key});
    EXPECT_THAT(error_of_plan([&] { check_plan(file, elsewhere, 2); }),
                testing::HasSubstr("but it was planned without that; leave it out, or plan again"));
    const PlanRequest planned{.job = elsewhere, .ranks = 2};
    const PlanFile with = parse_plan_file(to_string(plan_file(plan_job(planned), planned)));
    EXPECT_EQ(error_of_plan([&] { check_plan(with, elsewhere, 2); }), "no error") << key;
  }
  set_keys(job, {"train.batch=16"});
  EXPECT_THAT(error_of_plan([&] { check_plan(file, job, 2); }),
              testing::HasSubstr("the plan is for a training step other than that of"));
}

}  // namespace
}  // namespace trireme::plan_job_test

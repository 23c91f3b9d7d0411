// Budgets: where memory is short, homes are chosen such that the plan keeps within it, with the bits of a run without.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/loss_curve.h"
#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/op/message.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/step/compile/choose_homes.h"

namespace trireme::budget_test {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

Graph deep_step() {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 6, .width = 16, .heads = 2, .dropout = 0.1});
  return language_step(gpt, AdamW{}, false, 1);
}

PassOptions keeping_small() {
  return {.recompute = {.fewest_bytes = 256}};
}

Compiled compiled_within(const TierSizes& sizes, int ranks = 1, Parallel parallel = {}) {
  parallel.tiers = sizes;
  return compile(deep_step(), {.ranks = ranks, .parallel = parallel, .passes = keeping_small()});
}

int64_t planned(const Compiled& made, Tier tier) {
  return made.plan().arena(tier).bytes;
}

// "home h.3/state = disk", "keep h.3 = again".
std::vector<std::string> chosen_of(const Compiled& made) {
  std::vector<std::string> out;
  for (const ChosenRule& each : made.crews[0].chosen_homes) out.push_back(fmt::format("{} {}", each.key, each.rule));
  return out;
}

TEST(Budget, what_fits_has_nothing_chosen_for_it) {
  const Compiled usual = compiled_within({});
  const Compiled made = compiled_within({.device = MemorySize(planned(usual, Tier::kDevice))});
  EXPECT_THAT(chosen_of(made), IsEmpty());
  EXPECT_EQ(to_string(made.plan()), to_string(usual.plan()));
}

TEST(Budget, is_kept_with_the_fewest_parts_that_do) {
  const Compiled usual = compiled_within({});
  size_t before = 0;
  for (const int64_t percent : {90, 70, 50, 30}) {
    const int64_t limit = planned(usual, Tier::kDevice) * percent / 100;
    const Compiled made = compiled_within({.device = MemorySize(limit)});
    EXPECT_LE(planned(made, Tier::kDevice), limit);
    EXPECT_EQ(planned(made, Tier::kDisk), 0) << "no disk is named";
    EXPECT_GE(made.crews[0].chosen_homes.size(), before);
    before = made.crews[0].chosen_homes.size();
    EXPECT_GT(before, 0U);
  }
}

TEST(Budget, what_the_host_has_no_room_for_goes_to_the_disk) {
  const int64_t whole = planned(compiled_within({}), Tier::kDevice);
  const int64_t host = whole / 4;
  const Compiled made = compiled_within({MemorySize(whole / 2), MemorySize(host), DiskSpace("/scratch:1GB")});
  EXPECT_LE(planned(made, Tier::kDevice), whole / 2);
  EXPECT_LE(planned(made, Tier::kHost), host);
  EXPECT_GT(planned(made, Tier::kDisk), 0);
  EXPECT_THAT(chosen_of(made), testing::Contains(ContainsRegex("home .*/state = disk")));
}

std::string refusal_of(const TierSizes& sizes, int ranks = 1, const Parallel& parallel = {}) {
  try {
    compiled_within(sizes, ranks, parallel);
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

MemorySize fitting_in(const std::string& text, std::string_view before) {
  const size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << text;
  return MemorySize(at == std::string::npos ? "1GB" : text.substr(at + before.size()));
}

// The crew that needs most counts.
TEST(Budget, contracts_14_2_5_what_fits_is_of_all_stages_of_a_pipeline) {
  Parallel parallel;
  parallel.pipeline.crews = 2;
  parallel.accumulation = 2;
  for (const auto& rules : {std::vector<StageRule>{{"h.0..4", 0}, {"h.5", 1}}, {{"h.0", 0}, {"h.1..5", 1}}}) {
    parallel.pipeline.rules = rules;
    const std::string text = refusal_of({.device = MemorySize(1000)}, 2, parallel);
    EXPECT_EQ(refusal_of({.device = fitting_in(text, "the smallest that fits is ")}, 2, parallel), "");
  }
}

// Also where the device's memory is at its smallest, and staging of what the disk has takes more of the host's than
// there is.
TEST(Budget, contracts_14_2_5_a_host_of_the_size_that_is_said_to_fit_does) {
  TierSizes sizes{MemorySize(1000), MemorySize(4096), DiskSpace(":1GB")};
  sizes.device = fitting_in(refusal_of(sizes), "the smallest that fits is ");
  sizes.host = fitting_in(refusal_of(sizes), "it fits with ");
  EXPECT_EQ(refusal_of(sizes), "");
}

// What a refusal says would fit does.
TEST(Budget, contracts_14_2_5_too_little_is_refused_with_what_fits) {
  const std::string device = refusal_of({.device = MemorySize(1000)});
  EXPECT_THAT(device, HasSubstr("parallel.device_memory allows 1KB"));
  EXPECT_EQ(refusal_of({.device = fitting_in(device, "the smallest that fits is ")}), "");
  const int64_t whole = planned(compiled_within({}), Tier::kDevice);
  const std::string host = refusal_of({MemorySize(whole / 2), MemorySize(1000), {}});
  EXPECT_THAT(host, HasSubstr("parallel.host_memory allows 1000 bytes, and parallel.disk names no disk"));
  EXPECT_EQ(refusal_of({MemorySize(whole / 2), fitting_in(host, "it fits with "), {}}), "");
  const std::string disk = refusal_of({MemorySize(whole / 2), MemorySize(whole / 4), DiskSpace(":4KiB")});
  EXPECT_THAT(disk, HasSubstr("bytes on the disk; parallel.disk allows 4096 bytes"));
  EXPECT_EQ(refusal_of({MemorySize(whole / 2), MemorySize(whole / 4),
                        DiskSpace(":" + to_string(fitting_in(disk, "it fits with ")))}),
            "");
}

// By a disk that is slow, and by one that is not.
TEST(Budget, what_is_kept_is_computed_again_where_that_takes_less_than_to_wait_for_it) {
  const int64_t whole = planned(compiled_within({}), Tier::kDevice);
  const auto chosen_with = [&](double disk_bytes_per_s) {
    Parallel parallel;
    parallel.tiers = {MemorySize(whole * 4 / 10), MemorySize(whole / 4), DiskSpace("/scratch:1GB")};
    parallel.communication.machine =
        Machine{.memory_bytes_per_s = 1e10, .disk_bytes_per_s = disk_bytes_per_s, .flops_per_s = {{"f32", 1e11}}};
    const Compiled made = compile(deep_step(), {.parallel = parallel, .passes = keeping_small()});
    EXPECT_LE(planned(made, Tier::kDevice), whole * 4 / 10);
    return chosen_of(made);
  };
  EXPECT_THAT(chosen_with(1e6), testing::Contains(ContainsRegex("keep h.[0-9] = again")));
  EXPECT_THAT(chosen_with(1e13), testing::Not(testing::Contains(HasSubstr("again"))));
}

// What is printed, put into a job's file, gives the plan that it was printed for.
TEST(Budget, chosen_rules_are_those_of_a_jobs_file) {
  const int64_t whole = planned(compiled_within({}), Tier::kDevice);
  for (const double disk_bytes_per_s : {1e6, 1e13}) {  // of what is kept some is computed again, or none
    Parallel parallel;
    parallel.communication.machine =
        Machine{.memory_bytes_per_s = 1e10, .disk_bytes_per_s = disk_bytes_per_s, .flops_per_s = {{"f32", 1e11}}};
    Parallel within = parallel;
    within.tiers = {MemorySize(whole * 4 / 10), MemorySize(whole / 4), DiskSpace("/scratch:1GB")};
    const Compiled made = compile(deep_step(), {.parallel = within, .passes = keeping_small()});
    const std::string text = fmt::format("[data]\nkind = \"synthetic\"\n[train]\nsteps = 1\n[parallel]\n{}\n",
                                         fmt::join(as_keys(made.crews[0].chosen_homes), "\n"));
    const JobConfig job = parse_config(text, "pasted.toml");
    Parallel pasted = parallel;
    pasted.homes = job.parallel.homes;
    PassOptions passes = keeping_small();
    passes.recompute.rules = recompute_of(job).rules;
    const Compiled again = compile(deep_step(), {.parallel = pasted, .passes = passes});
    EXPECT_THAT(chosen_of(made), testing::Not(IsEmpty()));
    EXPECT_THAT(chosen_of(again), IsEmpty());
    EXPECT_EQ(to_string(again.plan()), to_string(made.plan()));
  }
}

void expect_keeps_of_its_own(const CompiledCrew& crew) {
  for (const ChosenRule& each : crew.chosen_homes) {
    if (each.key != "keep") continue;
    const ScopePattern part(each.rule.substr(0, each.rule.find(" = ")));
    EXPECT_TRUE(std::ranges::any_of(crew.program.graph.nodes(), [&](const Node& node) {
      return !is_message(def_of(node)) && part.matches(crew.program.graph.scope_of(node));
    })) << each.rule;
  }
}

// Also of a pipeline, where each crew has modules of its own: what it keeps of what others have sent is theirs that
// read it.
TEST(Budget, chosen_rules_of_all_crews_are_together_those_of_a_jobs_file) {
  Parallel parallel;
  parallel.pipeline.crews = 2;
  parallel.accumulation = 2;
  parallel.pipeline.rules = {{"wte", 0}, {"wpe", 0}, {"h.0..2", 0}, {"h.3..5", 1}, {"ln_f", 1}};
  const auto plans = [](const Compiled& made) { return to_string(*made.plans()[0]) + to_string(*made.plans()[1]); };
  const Compiled usual = compiled_within({}, 2, parallel);
  int64_t most = 0;
  for (const ExecutionPlan* const plan : usual.plans()) most = std::max(most, plan->arena().bytes);
  int compared = 0;
  for (const int64_t percent : {90, 80, 70, 60, 50}) {
    const Compiled made = compiled_within({.device = MemorySize(most * percent / 100)}, 2, parallel);
    std::vector<ChosenRule> all;
    bool each_keeps = true;
    for (const CompiledCrew& crew : made.crews) {
      all.insert(all.end(), crew.chosen_homes.begin(), crew.chosen_homes.end());
      expect_keeps_of_its_own(crew);
      each_keeps = each_keeps && std::ranges::count(crew.chosen_homes, "keep", &ChosenRule::key) > 0;
    }
    if (!each_keeps) continue;  // products are fused in fewer places where a job has rules for what is kept
    ++compared;
    const JobConfig job = parse_config(fmt::format("[data]\nkind = \"synthetic\"\n[train]\nsteps = 1\n[parallel]\n{}\n",
                                                   fmt::join(as_keys(all), "\n")),
                                       "pasted.toml");
    Parallel pasted = parallel;
    pasted.homes = job.parallel.homes;
    PassOptions passes = keeping_small();
    passes.recompute.rules = recompute_of(job).rules;
    const Compiled again = compile(deep_step(), {.ranks = 2, .parallel = pasted, .passes = passes});
    EXPECT_EQ(plans(again), plans(made)) << percent << " %: " << fmt::format("{}", fmt::join(as_keys(all), " "));
  }
  EXPECT_GT(compared, 0);
}

Parallel updating_on_host() {
  Parallel out;
  out.on_host.updates = true;
  return out;
}

// Of updates on the host, whose state lies there without a rule: the fewest parts of it, then all, then parameters.
TEST(Budget, state_of_updates_on_the_host_goes_on_to_the_disk) {
  const Compiled usual = compiled_within({}, 1, updating_on_host());
  const int64_t whole = planned(usual, Tier::kHost);
  const DiskSpace disk("/scratch:1GB");
  const Compiled fits = compiled_within({.host = MemorySize(whole), .disk = disk}, 1, updating_on_host());
  EXPECT_THAT(chosen_of(fits), IsEmpty());
  EXPECT_EQ(to_string(fits.plan()), to_string(usual.plan()));
  for (const int64_t percent : {90, 80, 70}) {
    const Compiled made =
        compiled_within({.host = MemorySize(whole * percent / 100), .disk = disk}, 1, updating_on_host());
    EXPECT_LE(planned(made, Tier::kHost), whole * percent / 100);
    EXPECT_GT(planned(made, Tier::kDisk), 0);
    EXPECT_THAT(chosen_of(made), testing::Each(HasSubstr("= disk")));
  }
  const Compiled both = compiled_within(
      {MemorySize(planned(usual, Tier::kDevice) * 8 / 10), MemorySize(whole * 9 / 10), disk}, 1, updating_on_host());
  EXPECT_LE(planned(both, Tier::kDevice), planned(usual, Tier::kDevice) * 8 / 10);
  EXPECT_LE(planned(both, Tier::kHost), whole * 9 / 10);
  Parallel without = updating_on_host();
  without.tier_ways.auto_offload = false;
  EXPECT_THAT(chosen_of(compiled_within({.host = MemorySize(whole / 2), .disk = disk}, 1, without)), IsEmpty());
}

TEST(Budget, of_updates_on_the_host_what_is_said_to_fit_does_and_changes_no_bits) {
  TierSizes sizes{.host = MemorySize(4096), .disk = DiskSpace(":1GB")};
  const std::string text = refusal_of(sizes, 1, updating_on_host());
  EXPECT_THAT(text, testing::Not(HasSubstr("of the device's memory")));
  sizes.host = fitting_in(text, "it fits with ");
  EXPECT_EQ(refusal_of(sizes, 1, updating_on_host()), "");
  const Graph graph = deep_step();
  for (const int ranks : {1, 2}) {
    Parallel parallel = updating_on_host();
    parallel.optimizer.level = ranks > 1 ? 1 : 0;
    const int64_t whole = planned(compiled_within({}, ranks, parallel), Tier::kHost);
    const auto usual = train_curves(graph, ranks, parallel, 0.1F, keeping_small());
    parallel.tiers = {.host = MemorySize(whole * 8 / 10), .disk = DiskSpace(":1GB")};
    EXPECT_EQ(other_bits(usual, train_curves(graph, ranks, parallel, 0.1F, keeping_small())), "");
  }
}

TEST(Budget, a_pass_that_is_left_out_runs_for_no_choice) {
  PassOptions passes = keeping_small();
  passes.disabled = {"on_host"};
  Parallel parallel = updating_on_host();
  const auto made = [&] { return compile(deep_step(), {.parallel = parallel, .passes = passes}); };
  const Compiled usual = made();
  EXPECT_EQ(host_ops_text(usual.plan()), "");
  parallel.tiers.device = MemorySize(planned(usual, Tier::kDevice) * 8 / 10);
  const Compiled within = made();
  EXPECT_THAT(chosen_of(within), testing::Not(IsEmpty()));
  EXPECT_EQ(host_ops_text(within.plan()), "");
}

TEST(Budget, contracts_14_2_3_shares_of_what_there_is_are_kept) {
  const int64_t whole = planned(compiled_within({}), Tier::kDevice);
  const Compiled made = compiled_within({.device = MemorySize(whole), .device_ratio = 0.5});
  EXPECT_LE(planned(made, Tier::kDevice), whole / 2);
  EXPECT_THAT(chosen_of(made), testing::Not(IsEmpty()));
}

TEST(Budget, contracts_14_2_1_below_the_working_set_fails_without_offload_and_trains_with_it) {
  const TierSizes sizes{.device = MemorySize(planned(compiled_within({}), Tier::kDevice) * 6 / 10)};
  Parallel without;
  without.tier_ways.auto_offload = false;
  const Compiled made = compiled_within(sizes, 1, without);
  try {
    require_fits(made.plan(), cpu_device(), sizes);
    ADD_FAILURE() << "nothing is refused";
  } catch (const Error& e) {
    EXPECT_THAT(e.text(), AllOf(HasSubstr(fmt::format("{} bytes", planned(made, Tier::kDevice))),
                                HasSubstr("parallel.device_memory allows")));
  }
  const Compiled with = compiled_within(sizes);
  require_fits(with.plan(), cpu_device(), sizes);
  const Graph graph = deep_step();
  const auto usual = train_curves(graph, 1, {}, 0.1F, keeping_small());
  Parallel parallel;
  parallel.tiers = sizes;
  EXPECT_EQ(other_bits(usual, train_curves(graph, 1, parallel, 0.1F, keeping_small())), "");
}

TEST(Budget, contracts_14_2_4_without_a_choice_all_lies_where_it_is_said) {
  const int64_t whole = planned(compiled_within({}), Tier::kDevice);
  Parallel parallel;
  parallel.tier_ways = {.auto_offload = false, .offload_to = Tier::kDisk};
  const Compiled made = compiled_within({.device = MemorySize(whole)}, 1, parallel);
  EXPECT_THAT(chosen_of(made), IsEmpty());
  EXPECT_EQ(made.plan().arena().persistent, 0);
  EXPECT_GT(made.plan().arena(Tier::kDisk).persistent, 0);
  const Graph graph = deep_step();
  EXPECT_EQ(other_bits(train_curves(graph, 1, {}, 0.1F), train_curves(graph, 1, parallel, 0.1F)), "");
}

TEST(Budget, contracts_14_2_2_changes_no_bits) {
  const Graph graph = deep_step();
  for (const int ranks : {1, 2}) {
    Parallel parallel;
    parallel.optimizer.level = ranks > 1 ? 3 : 0;
    const int64_t whole = planned(compiled_within({}, ranks, parallel), Tier::kDevice);
    const auto usual = train_curves(graph, ranks, parallel, 0.1F, keeping_small());
    parallel.tiers = {MemorySize(whole * 6 / 10), MemorySize(whole / 3), DiskSpace(":1GB")};
    EXPECT_EQ(other_bits(usual, train_curves(graph, ranks, parallel, 0.1F, keeping_small())), "");
  }
}

}  // namespace
}  // namespace trireme::budget_test

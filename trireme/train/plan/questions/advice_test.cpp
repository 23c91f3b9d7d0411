#include "trireme/train/plan/questions/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/exact/exact_plan.h"

namespace trireme::advice_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

// Two hosts of two devices, or one of four; so slow that arithmetic and links count.
Machine advised_machine(int64_t hosts, double net_bytes_per_s = 0) {
  Machine out{.name = "small", .hosts = hosts, .devices_per_host = 4 / hosts};
  out.memory_bytes = 16'000'000'000;
  out.memory_bytes_per_s = 1e12;
  out.achievable = 0.5;
  out.flops_per_s = {{"f32", 1e10}};
  out.levels = {{"host", 4 / hosts, 1e-6, 1e10}};
  if (hosts > 1) out.levels.push_back({"net", 4, 1e-5, net_bytes_per_s});
  return out;
}

PlanRequest request_for(const Machine& machine, std::vector<std::string> keys, int64_t memory_bytes = 0) {
  const std::string path = testing::TempDir() + fmt::format("/advice_{}_{}.toml", machine.hosts, memory_bytes);
  write_machine(machine, path);
  JobConfig job;
  set_published_model(job, "gpt2");
  keys.insert(keys.begin(),
              {"model.layers=4", "model.width=64", "model.heads=4", "model.vocabulary=256", "data.seq=32",
               "data.validation=0", "train.batch=16", "parallel.machine=" + path, "train.device=described:" + path});
  set_keys(job, keys);
  PlanRequest out{.job = job, .ranks = 4, .memory_bytes = memory_bytes};
  out.is_asked = [](const Way& way) {  // few, so that the tests are short
    return way.schedule == WaySchedule::k1F1B && way.recompute == WayRecompute::kNone &&
           way.micro_batches == (way.pp == 1 ? 1 : 4 * way.pp);
  };
  return out;
}

Advice advice_for(const PlanRequest& request) {
  return advise(request, *compiled_advice_search(request));
}

std::string line_of(const Advice& advice, std::string_view name) {
  const size_t at = advice.text.find("\n" + std::string(name)) + 1;
  return at == 0 ? "" : advice.text.substr(at, advice.text.find('\n', at) - at);
}

// Ten to twenty lines, and a word about each technique.
void expect_whole(const Advice& advice) {
  const auto lines = std::ranges::count(advice.text, '\n');
  EXPECT_GE(lines, 10) << advice.text;
  EXPECT_LE(lines, 20) << advice.text;
  for (const char* name : {"data parallelism", "optimizer parallelism", "tensor parallelism", "sequence parallelism",
                           "context parallelism", "expert parallelism", "pipeline", "recomputation", "offload"})
    EXPECT_THAT(line_of(advice, name), ContainsRegex(": (yes|no|as --auto finds)")) << name;
}

TEST(Advice, where_the_model_fits_on_one_device_is_data_parallelism) {
  const PlanRequest request = request_for(advised_machine(1), {});
  const Advice advice = advice_for(request);
  expect_whole(advice);
  ASSERT_TRUE(advice.way) << advice.text;
  EXPECT_EQ(advice.way->text, "data parallel") << advice.text;
  EXPECT_EQ(advice.text, advice_for(request).text);
  EXPECT_THAT(line_of(advice, "data parallelism"), HasSubstr("yes, dp over 4 ranks")) << advice.text;
  EXPECT_THAT(line_of(advice, "tensor parallelism"), ContainsRegex("no; with it --tp .* takes .* ms")) << advice.text;
}

TEST(Advice, where_the_optimizers_state_is_too_much_is_to_slice_it) {
  const Advice advice = advice_for(
      request_for(advised_machine(1), {"model.width=256", "model.layers=2", "train.batch=4", "data.seq=16"}, 20 << 20));
  expect_whole(advice);
  ASSERT_TRUE(advice.way) << advice.text;
  EXPECT_GT(advice.way->way.zero, 0) << advice.text;
  EXPECT_EQ(advice.way->way.tp * advice.way->way.pp * advice.way->way.cp, 1) << advice.text;
  EXPECT_THAT(line_of(advice, "optimizer parallelism"), HasSubstr("yes;")) << advice.text;
}

TEST(Advice, where_a_layer_is_too_large_is_tensor_parallelism) {
  const Advice advice =
      advice_for(request_for(advised_machine(1), {"model.width=512", "model.layers=1", "train.batch=4"}, 16 << 20));
  expect_whole(advice);
  ASSERT_TRUE(advice.way) << advice.text;
  EXPECT_EQ(advice.way->way.tp, 4) << advice.text;
  EXPECT_THAT(line_of(advice, "tensor parallelism"), HasSubstr("yes, tp over 4 ranks")) << advice.text;
  EXPECT_THAT(line_of(advice, "optimizer parallelism"), ContainsRegex("none fits: the smallest takes .* of 16.0 MiB"))
      << advice.text;
}

TEST(Advice, where_links_between_hosts_are_slow_is_a_pipeline_over_them) {
  const Advice advice = advice_for(request_for(advised_machine(2, 1e7), {}));
  expect_whole(advice);
  ASSERT_TRUE(advice.way) << advice.text;
  EXPECT_EQ(advice.way->way.pp, 2) << advice.text;
  EXPECT_THAT(line_of(advice, "pipeline"), HasSubstr("yes, pp over 2 ranks by net; without it")) << advice.text;
  EXPECT_THAT(line_of(advice, "data parallelism"), HasSubstr("by host")) << advice.text;
}

TEST(Advice, for_long_sequences_in_a_small_batch_is_to_cut_positions) {
  const Advice advice = advice_for(request_for(advised_machine(1), {"train.batch=1", "data.seq=512"}));
  expect_whole(advice);
  ASSERT_TRUE(advice.way) << advice.text;
  EXPECT_TRUE(advice.way->way.sp || advice.way->way.cp > 1) << advice.text;
  EXPECT_THAT(line_of(advice, "data parallelism"), HasSubstr("no; with it none can be had: the batch of 1 sample"))
      << advice.text;
  // Attention of one head cannot be cut over tp.
  const Advice one_head =
      advice_for(request_for(advised_machine(1), {"train.batch=1", "data.seq=512", "model.heads=1"}));
  ASSERT_TRUE(one_head.way) << one_head.text;
  EXPECT_EQ(one_head.way->way.cp, 4) << one_head.text;
  EXPECT_THAT(line_of(one_head, "context parallelism"), HasSubstr("yes, cp over 4 ranks")) << one_head.text;
}

TEST(Advice, says_by_how_much_nothing_fits) {
  const Advice advice = advice_for(request_for(advised_machine(1), {}, 1 << 20));
  EXPECT_FALSE(advice.way);
  EXPECT_THAT(advice.text, ContainsRegex("nothing can be taken; none fits: the smallest takes .* of 1.00 MiB a rank"));
  EXPECT_THAT(advice.text, HasSubstr("--device-memory moves what does not fit to the host"));
}

// What is said of a way is what planning it alone says.
TEST(Advice, has_the_figures_of_planned_ways) {
  const PlanRequest request = request_for(advised_machine(1), {});
  const Advice advice = advice_for(request);
  PlanRequest asked = request;
  asked.is_asked = [&](const Way& way) { return way.tp > 1 && request.is_asked(way); };
  const JobPlan tensor = plan_job(asked);
  ASSERT_FALSE(tensor.best.empty());
  EXPECT_THAT(line_of(advice, "tensor parallelism"),
              HasSubstr(fmt::format("{} takes {:.3f} ms", tensor.best.front().way.text(),
                                    tensor.best.front().cost.step_s * 1e3)));
}

TEST(Advice, by_prices_of_parts_takes_the_way_that_the_exact_search_finds) {
  PlanRequest request = request_for(advised_machine(2, 1e7), {"model.layers=6"}, 1 << 30);
  request.is_asked = {};
  const Advice advice = advise(request, *exact_advice_search(request));
  ASSERT_TRUE(advice.way) << advice.text;
  request.top = 200;
  const ExactPlan plan = plan_exact(request);
  ASSERT_FALSE(plan.best.empty());
  const auto found = std::ranges::find(plan.best, advice.way->text, [](const ExactWay& way) { return way_text(way); });
  ASSERT_NE(found, plan.best.end()) << advice.text;
  EXPECT_LE(static_cast<double>(found->price.total), static_cast<double>(plan.best.front().price.total) * (1 + kAlike));
  EXPECT_EQ(advice.way->bytes, std::ranges::max(found->crew_bytes));
  EXPECT_THAT(line_of(advice, "cuts by op (--auto)"), HasSubstr("no way that is looked at has it"));
  EXPECT_THAT(advice.text, testing::Not(HasSubstr("--most-jobs")));
  request.most_jobs = 2;
  const Advice stopped = advise(request, *exact_advice_search(request));
  ASSERT_TRUE(stopped.way) << stopped.text;
  EXPECT_GE(stopped.way->step_s, static_cast<double>(plan.best.front().price.total) * 1e-12);
  EXPECT_THAT(stopped.text, HasSubstr("not all of this is proven, as searches were stopped (--most-jobs)"));
}

}  // namespace
}  // namespace trireme::advice_test

#include "trireme/train/plan/parts/inner_way.h"

#include <gtest/gtest.h>

#include "trireme/train/job/kinds.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/exact/exact_setting.h"

namespace trireme::inner_way_test {
namespace {

constexpr int64_t kMuch = int64_t{1} << 34;

// Two blocks with an MLP, then three with experts, on a host with memory beside the devices.
PlanRequest mixture() {
  Machine machine{.name = "bounds", .hosts = 128, .devices_per_host = 8};
  machine.memory_bytes = machine.host_memory_bytes = kMuch;
  machine.memory_bytes_per_s = 1e11;
  machine.to_host_bytes_per_s = machine.from_host_bytes_per_s = 2e10;
  machine.flops_per_s = {{"f32", 1e12}};
  machine.levels = {{"host", 8, 1e-6, 1e11}, {"network", 1024, 5e-6, 2e10}};
  const std::string path = testing::TempDir() + "/inner_way_bounds.toml";
  write_machine(machine, path);
  PlanRequest out{.ranks = 64, .memory_bytes = kMuch, .top = 1};
  set_published_model(out.job, "deepseek-v2-lite");
  set_keys(out.job, {"model.layers=5",          "model.dense_layers=2",    "model.width=128",
                     "model.heads=16",          "model.key_rank=32",       "model.head_size=16",
                     "model.rotary_size=8",     "model.value_size=16",     "model.mlp_width=256",
                     "model.experts=4",         "model.shared_experts=1",  "model.expert_width=64",
                     "model.top_k=2",           "model.vocabulary=128",    "data.seq=128",
                     "train.batch=128",         "data.validation=0",       "model.expert_groups=128",
                     "model.aux_loss_factor=0", "parallel.machine=" + path});
  return out;
}

// Tables as they are compiled, before any bound raises them.
class Compiled {
 public:
  explicit Compiled(const PlanRequest& request)
      : setting_(exact_setting(request)), pricer_(setting_.job, setting_.parts, setting_.figures, 1) {}
  PartPrices of(const InnerWay& way) {
    std::optional<PartPrices> out = pricer_.compiled(way);
    EXPECT_TRUE(out) << way.way().text() << ": " << pricer_.refusal();
    return out ? *out : PartPrices();
  }
  int64_t jobs() const { return pricer_.jobs_compiled(); }

 private:
  ExactSetting setting_;
  PartPricer pricer_;
};

TEST(InnerWay, with_ep_has_blocks_that_keep_as_much_elsewhere_as_without) {
  Compiled compiled(mixture());
  for (const WayRecompute again : {WayRecompute::kNone, WayRecompute::kSelective}) {
    for (const int64_t tp : {1, 2}) {
      const InnerWay way{.tp = tp, .ep = 4, .rows = kMostRows, .recompute = again, .keep = Tier::kHost};
      SCOPED_TRACE(way.way().text());
      const std::optional<InnerWay> known = by_kept_without_ep(way);
      ASSERT_TRUE(known);
      EXPECT_EQ(known->ep, 1);
      const PartPrices own = compiled.of(way);
      PartPrices raised = own;
      raise_kept_moves(raised, compiled.of(*known), *known, way);
      EXPECT_EQ(raised, own);
      EXPECT_GT(own.parts[1].leaving, 0);
      EXPECT_GT(own.parts[2].returning, 0);
    }
  }
}

TEST(InnerWay, of_more_tp_takes_no_less_than_its_share_of_eight) {
  Compiled compiled(mixture());
  for (const bool sp : {false, true}) {
    const InnerWay way{.tp = 16, .sp = sp, .rows = kMostRows};
    const std::optional<InnerWay> known = by_fewer_tp(way);
    ASSERT_TRUE(known);
    EXPECT_EQ(known->tp, kFewerTp);
    const PartPrices own = compiled.of(way);
    const PartPrices least = least_by_fewer_axes(compiled.of(*known), *known, way);
    for (size_t block = 1; block + 1 < own.parts.size(); ++block) {
      PartPrice raised = own.parts[block];
      raise_passes(raised, least.parts[block]);
      EXPECT_EQ(raised, own.parts[block]) << "sp " << sp << ", block " << block;
      EXPECT_GT(least.parts[block].moving_forward, 0);
      EXPECT_GT(least.parts[block].weight_grad, 0);
    }
  }
}

TEST(InnerWay, sums_of_few_ranks_take_no_longer_with_cp_and_sp) {
  Compiled compiled(mixture());
  for (const int64_t ep : {1, 2}) {
    for (const bool sp : {false, true}) {
      const InnerWay way{.tp = 2, .cp = 2, .ep = ep, .dp = 16, .sp = sp, .rows = 1};
      SCOPED_TRACE(way.way().text());
      const std::optional<InnerWay> known = with_fewest_sums(way);
      ASSERT_TRUE(known);
      EXPECT_EQ(*known, (InnerWay{.tp = 2, .ep = ep, .dp = kFewRanks, .rows = 1}));
      const PartPrices own = compiled.of(way), few = compiled.of(*known);
      for (size_t block = 1; block + 1 < own.parts.size(); ++block) {
        EXPECT_GE(own.parts[block].sync, few.parts[block].sync) << block;
        EXPECT_GT(few.parts[block].sync, 0) << block;
      }
    }
  }
}

// What stands before and after the blocks serves for all ways that differ in what blocks compute again.
TEST(InnerWay, tables_are_those_of_the_way_whatever_was_compiled_before) {
  const std::vector<InnerWay> cuts{{.tp = 2},
                                   {.tp = 2, .vocabulary = true},
                                   {.ep = 2, .dp = 4, .zero = 3},
                                   {.tp = 2, .kept_slices = true},
                                   {.ep = 2, .keep = Tier::kHost},
                                   {.dp = 8, .zero = 1, .place = {.state = Tier::kHost}}};
  for (const std::vector<WayRecompute>& order : {std::vector(kWayRecompute.begin(), kWayRecompute.end()),
                                                 std::vector(kWayRecompute.rbegin(), kWayRecompute.rend())}) {
    Compiled together(mixture());
    for (InnerWay way : cuts) {
      for (const WayRecompute again : order) {
        way.recompute = again;
        EXPECT_EQ(together.of(way), Compiled(mixture()).of(way)) << way.way().text();
      }
    }
  }
}

TEST(InnerWay, of_a_cut_vocabulary_nothing_is_compiled_again_where_only_blocks_differ) {
  Compiled compiled(mixture());
  InnerWay way{.tp = 2, .vocabulary = true};
  compiled.of(way);
  EXPECT_EQ(compiled.jobs(), 2);  // with the vocabulary whole, and cut
  way.recompute = WayRecompute::kFull;
  compiled.of(way);
  EXPECT_EQ(compiled.jobs(), 3);
  way.recompute = WayRecompute::kSelective;  // which may be of any part
  compiled.of(way);
  EXPECT_EQ(compiled.jobs(), 5);
}

}  // namespace
}  // namespace trireme::inner_way_test

// Homes: training with the optimizer's state, and what is kept for the backward pass, on the host or the disk has the
// bits of training without, beside all other parallelism.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/loss_curve.h"
#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/exec/disk/blocks.h"
#include "trireme/exec/memory/memory_plan.h"
#include "trireme/op/registry.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/step/compile/choose_homes.h"

namespace trireme::homes_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

struct HomesCase {
  std::string name;
  int ranks = 1;
  int64_t tp = 1, pp = 1, zero = 0, micro_batches = 1;
  std::string schedule = "1f1b";
};

void PrintTo(const HomesCase& of, std::ostream* out) {
  *out << of.name;
}

Parallel parallel_with(const HomesCase& of, const std::vector<HomeRule>& homes) {
  JobConfig config;
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = of.tp;
  config.parallel.pp = of.pp;
  config.parallel.schedule = of.schedule;
  config.parallel.zero.level = of.zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = of.micro_batches;
  config.parallel.homes = homes;
  return parallel_of(config, of.ranks);
}

std::vector<HomeRule> state_on_host() {
  return {parse_home_rule("*/state = host")};
}
std::vector<HomeRule> state_on_disk() {
  return {parse_home_rule("*/state = disk")};
}

class HomesOnRanks : public testing::TestWithParam<HomesCase> {};

TEST_P(HomesOnRanks, change_no_bits) {
  const HomesCase& of = GetParam();
  const Graph graph = gpt_step(AdamW{});
  const auto usual = train_curves(graph, of.ranks, parallel_with(of, {}), 0.1F);
  EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, parallel_with(of, state_on_host()), 0.1F)), "");
  EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, parallel_with(of, state_on_disk()), 0.1F)), "");
}

// Where gradients or what is kept leave the device, and with rules for ops on the host, gradients of micro-batches are
// added by ops of their own, in another order than by products (pass/sum_in_products).
PassOptions added_apart() {
  return {.disabled = {"sum_in_products"}};
}

// The first part of the model, products of others and all updates.
TEST_P(HomesOnRanks, ops_on_the_host_change_no_bits) {
  const HomesCase& of = GetParam();
  const Graph graph = gpt_step(AdamW{});
  const auto usual = train_curves(graph, of.ranks, parallel_with(of, {}), 0.1F, added_apart());
  Parallel updates = parallel_with(of, {});
  updates.on_host.updates = true;
  EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, updates, 0.1F, added_apart())), "");
  Parallel mixed = parallel_with(of, {parse_home_rule("h.1 = host"), parse_home_rule("wpe/state = disk")});
  mixed.on_host = {.rules = {parse_host_rule("wte = host"), parse_host_rule("h.0 = host"),
                             parse_host_rule("*/matmul = host"), parse_host_rule("h.0.mlp = device")},
                   .updates = true};
  EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, mixed, 0.1F)), "");
}

// Tensors of several parts, uneven ones among them.
TEST_P(HomesOnRanks, updates_in_parts_change_no_bits) {
  const HomesCase& of = GetParam();
  nn::Gpt gpt({.vocabulary = 76, .context = 8, .layers = 2, .width = 64, .heads = 4});
  const Graph graph = language_step(gpt, AdamW{}, false, 1);
  const auto usual = train_curves(graph, of.ranks, parallel_with(of, {}), 0.1F);
  for (const char* const tier : {"host", "disk"}) {
    Parallel parts = parallel_with(
        of, {parse_home_rule(fmt::format("* = {}", tier)), parse_home_rule(fmt::format("*/state = {}", tier)),
             parse_home_rule("wpe/state = device"), parse_home_rule("h.0 = device")});
    parts.tier_ways.update_part = "5KiB";
    parts.tier_ways.prefetch = {parse_prefetch_rule("h.* = 1"), parse_prefetch_rule("wte = 9")};
    EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, parts, 0.1F)), "") << tier;
  }
}

PassOptions kept_in(Recompute::Rule::Keep keep) {
  return {.recompute = {.rules = {{.pattern = "*", .keep = keep}}, .fewest_bytes = 1}};
}
PassOptions kept_on_host() {
  return kept_in(Recompute::Rule::Keep::kHost);
}
PassOptions kept_on_disk() {
  return kept_in(Recompute::Rule::Keep::kDisk);
}

// Parameters on the disk but for two, gradients too, and state in both.
std::vector<HomeRule> all_homes() {
  return {
      parse_home_rule("* = disk"),          parse_home_rule("wte = host"),          parse_home_rule("wpe = device"),
      parse_home_rule("*/gradient = disk"), parse_home_rule("wte/gradient = host"), parse_home_rule("*/state = host"),
      parse_home_rule("wte/state = disk")};
}

TEST_P(HomesOnRanks, of_parameters_and_gradients_change_no_bits) {
  const HomesCase& of = GetParam();
  const Graph graph = gpt_step(AdamW{});
  const auto usual = train_curves(graph, of.ranks, parallel_with(of, {}), 0.1F, added_apart());
  EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, parallel_with(of, all_homes()), 0.1F)), "");
  EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, parallel_with(of, all_homes()), 0.1F, kept_on_disk())), "");
}

// The weight of the last product and its gradient are not there together.
TEST_P(HomesOnRanks, change_no_bits_of_a_loss_in_pieces) {
  const HomesCase& of = GetParam();
  nn::Gpt gpt({.vocabulary = 600, .context = 8, .layers = 2, .width = 16, .heads = 4});  // of 192 tokens at most
  const Graph graph = language_step(gpt, AdamW{}, false, 1);
  PassOptions pieces = added_apart();
  pieces.loss_pieces = 3;
  const auto usual = train_curves(graph, of.ranks, parallel_with(of, {}), 0.1F, pieces);
  EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, parallel_with(of, all_homes()), 0.1F, pieces)), "");
  PassOptions dense = pieces;
  dense.disabled.emplace_back("sparse_updates");
  EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, parallel_with(of, {}), 0.1F, dense)), "") << "in lists";
}

TEST_P(HomesOnRanks, change_no_bits_of_what_is_kept_for_the_backward_pass) {
  const HomesCase& of = GetParam();
  const Graph graph = gpt_step(AdamW{});
  const auto usual = train_curves(graph, of.ranks, parallel_with(of, {}), 0.1F, added_apart());
  EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, parallel_with(of, state_on_host()), 0.1F, kept_on_host())),
            "");
  EXPECT_EQ(other_bits(usual, train_curves(graph, of.ranks, parallel_with(of, state_on_disk()), 0.1F, kept_on_disk())),
            "");
}

INSTANTIATE_TEST_SUITE_P(Beside, HomesOnRanks,
                         testing::Values(HomesCase{"nothing"}, HomesCase{"data", 2}, HomesCase{"tensor", 2, 2},
                                         HomesCase{"micro_batches", 2, 1, 1, 0, 3}, HomesCase{"zero1", 2, 1, 1, 1},
                                         HomesCase{"zero2", 2, 1, 1, 2}, HomesCase{"zero3", 2, 1, 1, 3, 2},
                                         HomesCase{"stages", 2, 1, 2, 0, 4},
                                         HomesCase{"split_backward", 2, 1, 2, 0, 4, "zb-h1"},
                                         HomesCase{"stages_tensor_zero", 8, 2, 2, 3, 4}),
                         [](const auto& about) { return about.param.name; });

int64_t bytes_of_state(const ExecutionPlan& plan) {
  int64_t out = 0;
  for (const PlanInput& input : plan.inputs) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(input.value)].buffer)];
    if (input.role == Role::kState) out += align_buffer(buffer.bytes);
  }
  return out;
}

TEST(HomesOfState, are_planned_to_the_byte) {
  const Graph graph = gpt_step(AdamW{});
  const HomesCase zero2{"", 2, 1, 1, 2};
  const Compiled usual = compile(graph, {.ranks = 2, .parallel = parallel_with(zero2, {})});
  const Compiled made = compile(graph, {.ranks = 2, .parallel = parallel_with(zero2, state_on_host())});
  EXPECT_EQ(made.plan().arena(Tier::kHost).bytes, bytes_of_state(usual.plan()));
  EXPECT_EQ(made.plan().arena(Tier::kHost).persistent, bytes_of_state(usual.plan()));
  EXPECT_EQ(made.plan().arena().persistent, usual.plan().arena().persistent - bytes_of_state(usual.plan()));
}

// Whole sectors for each, and nothing of it in memory but what is on its way.
TEST(HomesOfState, on_the_disk_are_planned_to_the_byte) {
  const Graph graph = gpt_step(AdamW{});
  const HomesCase zero2{"", 2, 1, 1, 2};
  const Compiled usual = compile(graph, {.ranks = 2, .parallel = parallel_with(zero2, {})});
  const Compiled made = compile(graph, {.ranks = 2, .parallel = parallel_with(zero2, state_on_disk())});
  int64_t on_disk = 0;
  for (const PlanInput& input : usual.plan().inputs) {
    const int buffer = usual.plan().values[static_cast<size_t>(input.value)].buffer;
    if (input.role == Role::kState) on_disk += bytes_on_disk(usual.plan().buffers[static_cast<size_t>(buffer)].bytes);
  }
  EXPECT_EQ(made.plan().arena(Tier::kDisk), (Arena{on_disk, on_disk, on_disk}));
  EXPECT_EQ(made.plan().arena().persistent, usual.plan().arena().persistent - bytes_of_state(usual.plan()));
  EXPECT_EQ(made.plan().arena(Tier::kHost).persistent, 0);
  EXPECT_EQ(bytes_by_holding(made.plan(), Tier::kHost)[static_cast<size_t>(Holding::kScratch)],
            made.plan().arena(Tier::kHost).lower_bound);
}

TEST(HomesOfState, what_a_tier_may_not_take_is_refused_with_the_key) {
  const Graph graph = gpt_step(AdamW{});
  const Compiled made = compile(graph, {.parallel = parallel_with({"", 1}, state_on_disk())});
  const auto refusal = [&](const TierSizes& sizes) {
    try {
      require_fits(made.plan(), cpu_device(), sizes);
    } catch (const Error& e) {
      return e.text();
    }
    return std::string();
  };
  const auto exactly = [&](Tier tier, int64_t more) { return MemorySize(made.plan().arena(tier).bytes + more); };
  TierSizes sizes{exactly(Tier::kDevice, 0), exactly(Tier::kHost, 0), DiskSpace(":1GB")};
  EXPECT_EQ(refusal(sizes), "");
  sizes.device = exactly(Tier::kDevice, -1);
  EXPECT_THAT(refusal(sizes), HasSubstr("bytes of the tier 'device' on each rank; parallel.device_memory allows"));
  sizes.device = {};
  sizes.host = exactly(Tier::kHost, -1);
  EXPECT_THAT(refusal(sizes), HasSubstr("bytes of the tier 'host' on each rank; parallel.host_memory allows"));
  sizes.host = {};
  sizes.disk = ":4KB";
  EXPECT_THAT(refusal(sizes),
              HasSubstr("parallel.disk allows 4KB (4000 bytes); allow more, or give homes on the disk"));
}

TEST(HomesOfState, are_refused_where_there_is_none) {
  const Graph graph = gpt_step(Sgd{});
  try {
    compile(graph, {.ranks = 1, .parallel = parallel_with({"", 1}, state_on_host())});
    ADD_FAILURE() << "nothing is refused";
  } catch (const Error& e) {
    EXPECT_THAT(e.text(), HasSubstr("parallel.home '*/state = host' matches no parameter that the optimizer has state "
                                    "of. There is none"));
  }
}

int64_t fullest(const ExecutionPlan& plan, Tier tier, Holding holding) {
  return bytes_by_holding(plan, tier)[static_cast<size_t>(holding)];
}

// Nothing of a model is in the device's memory all step; what a block needs comes and goes.
TEST(HomesOfParameters, leave_the_device_between_their_readers) {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 8, .width = 16, .heads = 2});
  const Graph graph = language_step(gpt, AdamW{}, false, 0);
  const Compiled usual = compile(graph, {});
  const Compiled made =
      compile(graph, {.parallel = {.homes = {parse_home_rule("* = disk"), parse_home_rule("*/state = disk")}}});
  EXPECT_EQ(made.plan().arena().persistent, 0);
  EXPECT_GE(made.plan().arena(Tier::kDisk).persistent, usual.plan().arena().persistent);
  EXPECT_LT(fullest(made.plan(), Tier::kDevice, Holding::kScratch), usual.plan().arena().persistent / 3);
  int loads = 0;
  for (const Action& action : made.plan().actions) {
    for (const int value : action.in)
      loads += action.lane == Lane::kLoad && made.plan().input("h.0.mlp.c_fc.weight").value == value ? 1 : 0;
  }
  EXPECT_EQ(loads, 2) << "once for the forward pass, once for the backward pass and the update";
}

// Bytes of one kind at the moment when they are most.
int64_t most_of(const ExecutionPlan& plan, Tier tier, Holding holding) {
  int64_t most = 0;
  for (int at = 0; at < static_cast<int>(plan.actions.size()); ++at) {
    int64_t now = 0;
    for (const Buffer& b : plan.buffers)
      now += b.tier == tier && b.holding == holding && b.first <= at && at <= b.last ? b.bytes : 0;
    most = std::max(most, now);
  }
  return most;
}

// With clipping all gradients are alive at once.
TEST(HomesOfGradients, leave_until_all_of_them_are_known) {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 8, .width = 16, .heads = 2});
  const Graph graph = language_step(gpt, AdamW{}, false, 1);
  const Compiled usual = compile(graph, {});
  const Compiled made = compile(graph, {.parallel = {.homes = {parse_home_rule("*/gradient = host")}}});
  EXPECT_LT(most_of(made.plan(), Tier::kDevice, Holding::kGradient),
            most_of(usual.plan(), Tier::kDevice, Holding::kGradient) / 2);
  EXPECT_GT(most_of(made.plan(), Tier::kHost, Holding::kGradient), 0);
}

// Where blocks are computed again, a collective takes sums of the forward pass and of gradients in one.
TEST(HomesOfGradients, are_left_also_for_a_collective_that_is_made_again) {
  const Graph graph = gpt_step(AdamW{}, false, 4);
  const PassOptions passes{.recompute = {.blocks = -1}};
  const auto usual = train_curves(graph, 2, parallel_with({"", 2}, {}), 0.1F, passes);
  EXPECT_EQ(other_bits(usual, train_curves(graph, 2, parallel_with({"", 2}, all_homes()), 0.1F, passes)), "");
}

TEST(HomesOfActivations, leave_less_on_the_device) {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 8, .width = 16, .heads = 2});
  const Graph graph = language_step(gpt, Sgd{}, false, 0);
  const Compiled usual = compile(graph, {.passes = {.disabled = {"fuse_rows"}}});
  PassOptions passes = kept_on_host();
  passes.disabled = {"fuse_rows"};
  const Compiled made = compile(graph, {.passes = passes});
  EXPECT_LT(fullest(made.plan(), Tier::kDevice, Holding::kActivation),
            fullest(usual.plan(), Tier::kDevice, Holding::kActivation) / 2);
  EXPECT_GT(fullest(made.plan(), Tier::kHost, Holding::kActivation),
            fullest(usual.plan(), Tier::kDevice, Holding::kActivation) / 2);
  EXPECT_EQ(made.plan().arena(Tier::kHost).persistent, 0);
}

// Two layers with an activation function between them.
struct Mlp : nn::Module {
  Tensor forward(const Tensor& x) override { return head(relu(hidden(x))); }
  nn::Linear hidden{12, 24, {.name = "hidden"}}, head{24, 10, {.name = "head"}};
};

// Products and sums, and all else, on the host.
TEST(ModulesOnTheHost, contracts_14_1_1_and_2_have_the_bits_of_the_device_in_data_parallel_and_are_listed) {
  const auto step_of = [](Mlp& model) {
    return training_step([&](const Tensor& x) { return model(x); }, class_loss(), mlp_batch(), AdamW{},
                         {.name = "mlp", .seed = 3});
  };
  Mlp usual, placed, partly;
  placed.on("host");
  partly.on("host");
  partly.head.on("device");
  const auto on_device = train_curves(step_of(usual), 4, {}, 0.1F);
  EXPECT_EQ(other_bits(on_device, train_curves(step_of(placed), 4, {}, 0.1F)), "");
  EXPECT_EQ(other_bits(on_device, train_curves(step_of(partly), 4, {}, 0.1F)), "");
  const std::string all = host_ops_text(compile(step_of(placed), {.ranks = 4}).plan());
  EXPECT_THAT(all, HasSubstr("matmul"));
  EXPECT_THAT(host_ops_text(compile(step_of(partly), {.ranks = 4}).plan()), testing::Not(HasSubstr("at 'head'")));
  EXPECT_EQ(host_ops_text(compile(step_of(usual), {.ranks = 4}).plan()), "");
  EXPECT_THROW(placed.on("disk"), Error);
}

// A job's rules come after those of the model's code, and a module's after those of the module around it.
TEST(HomesOfModules, are_what_their_code_asks_for) {
  const auto step_of = [](Mlp& model) {
    return training_step([&](const Tensor& x) { return model(x); }, class_loss(), mlp_batch(), AdamW{},
                         {.name = "mlp", .seed = 3});
  };
  Mlp usual, placed;
  placed.home("disk");
  placed.home("host", "state");
  placed.head.home("device");
  const Graph graph = step_of(placed);
  const auto tier_in = [](const Compiled& made, const std::string& name) {
    const ExecutionPlan& plan = made.plan();
    return plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(plan.input(name).value)].buffer)].tier;
  };
  const Compiled made = compile(graph, {});
  EXPECT_EQ(tier_in(made, "hidden.weight"), Tier::kDisk);
  EXPECT_EQ(tier_in(made, "hidden.weight.m"), Tier::kHost);
  EXPECT_EQ(tier_in(made, "head.weight"), Tier::kDevice);
  EXPECT_EQ(tier_in(made, "head.weight.m"), Tier::kHost);
  const Compiled ruled = compile(graph, {.parallel = {.homes = {parse_home_rule("hidden.weight = host")}}});
  EXPECT_EQ(tier_in(ruled, "hidden.weight"), Tier::kHost);
  EXPECT_EQ(tier_in(ruled, "hidden.bias"), Tier::kDisk);
  EXPECT_EQ(to_string(parse_graph(to_string(graph), find_op_base)), to_string(graph));
  EXPECT_EQ(other_bits(train_curves(step_of(usual), 2, {}, 0.1F), train_curves(graph, 2, {}, 0.1F)), "");
  EXPECT_THROW(placed.home("moon"), Error);
  EXPECT_THROW(placed.home("disk", "activations"), Error);
}

// Where the module's code has no parameters, what it asks for would change nothing.
class Doubled : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override { return x + x; }
  std::string_view kind() const override { return "doubled"; }
};

TEST(HomesOfModules, of_which_none_has_parameters_are_refused) {
  Mlp model;
  Doubled doubled;
  doubled.home("disk");
  const Graph graph = training_step([&](const Tensor& x) { return doubled(model(x)); }, class_loss(), mlp_batch(),
                                    AdamW{}, {.name = "mlp", .seed = 3});
  try {
    compile(graph, {});
    ADD_FAILURE() << "compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.text(),
              "the model's code asks for the home 'doubled = disk', and there are no parameters in 'doubled'");
  }
}

}  // namespace
}  // namespace trireme::homes_test

// Every key of [parallel] at another value than its default changes the plans of some ranks, or is refused, or it is
// said that it has no effect; and what is said to have none has none.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "trireme/base/error.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/step/assembly.h"
#include "trireme/train/step/compile/remarks.h"

namespace trireme::key_effects_test {
namespace {

constexpr const char* kText =
    "[model]\nkind = \"gpt\"\nlayers = 2\nwidth = 32\nheads = 2\nvocabulary = 64\n[data]\nkind = \"synthetic\"\nseq = "
    "16\nvalidation = 0.5\n[train]\nsteps = 1\nbatch = 8\n";

using Settings = std::vector<std::string>;

struct Made {
  std::string plans;    // of all ranks
  std::string remarks;  // of what has no effect
};

// Nothing where the job is refused.
std::optional<Made> made_by(const Settings& settings, int64_t ranks) {
  try {
    const JobConfig config = parse_config(kText, "job.toml", settings);
    Made out;
    for (const std::string& remark : remarks(config, ranks)) out.remarks += remark + "\n";
    const auto model = make_model(config);
    const Assembly assembly = assembly_of(config, *model, ranks);
    JobGraphs graphs = graphs_of(assembly, ranks);
    const CompiledJob job = compile(std::move(graphs.step), std::move(graphs.evaluation),
                                    compile_options(assembly, graphs.parallel, ranks, 1));
    for (const std::string& remark : remarks(job.step, assembly.options.parallel, ranks)) out.remarks += remark + "\n";
    out.remarks += order_without_effect(job.step, assembly.options.parallel);
    for (const ExecutionPlan* const plan : job.step.plans()) out.plans += to_string(*plan);
    if (job.evaluation) {
      for (const ExecutionPlan* const plan : job.evaluation->plans()) out.plans += to_string(*plan);
    }
    return out;
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2) << error.what();
    return std::nullopt;
  }
}

// What they change is no plan's text.
const std::set<std::string> kBesidePlans{"mode",  "device_num",          "transport",     "machine",
                                         "rates", "parameter_broadcast", "save_strategy", "strategy"};
// They say how something lies, how much there is, or what is looked at: of some jobs that is so without them.
const std::set<std::string> kMayBeSo{"search",
                                     "mesh",
                                     "dataset",
                                     "fields",
                                     "ops",
                                     "parameters",
                                     "stages",
                                     "keep",
                                     "slice_crossings",
                                     "prefetch",
                                     "device_memory",
                                     "host_memory",
                                     "disk",
                                     "fully_use_devices",
                                     "elementwise_op_strategy_follow",
                                     "enable_algo_approxi",
                                     "algo_approxi_epsilon",
                                     "tensor_slice_align_enable",
                                     "tensor_slice_align_size",
                                     "enable_alltoall",
                                     "all_reduce_fusion_mb",
                                     "all_reduce_fusion_config",
                                     "fusion"};

// "parallel.sp = true has no effect", "recompute_communication = false: ...".
bool is_said_of(const std::string& key, const std::string& remarks) {
  for (const char* after : {" = ", ": ", ", ", " has no effect"}) {
    if (remarks.find(key + after) != std::string::npos) return true;
  }
  return false;
}

// Another value of each of the others.
const std::map<std::string, std::string> kOther{{"search", "dynamic_programming"},
                                                {"gradients_mean", "false"},
                                                {"loss_repeated_mean", "false"},
                                                {"tp", "2"},
                                                {"cp", "2"},
                                                {"cp_algorithm", "ring"},
                                                {"ulysses_degree", "1"},
                                                {"vocabulary", "true"},
                                                {"sp", "true"},
                                                {"ep", "2"},
                                                {"pp", "2"},
                                                {"schedule", "gpipe"},
                                                {"virtual_stages", "2"},
                                                {"seq_chunks", "2"},
                                                {"stages", "[\"h.0 = 0\", \"h.1 = 1\"]"},
                                                {"slice_crossings", "always"},
                                                {"keep", "[\"h.* = again\"]"},
                                                {"recompute_communication", "false"},
                                                {"optimizer_comm_recompute", "false"},
                                                {"recompute_slice_activation", "true"},
                                                {"home", "[\"*/state = host\"]"},
                                                {"on", "[\"wte = host\"]"},
                                                {"optimizer_on", "host"},
                                                {"device_memory", "1GB"},
                                                {"device_ratio", "0.5"},
                                                {"host_memory", "1GB"},
                                                {"host_ratio", "0.5"},
                                                {"disk", "/tmp"},
                                                {"update_part", "4KiB"},
                                                {"prefetch", "[\"h.* = 1\"]"},
                                                {"disk_block", "64KiB"},
                                                {"disk_queue", "8"},
                                                {"auto_offload", "false"},
                                                {"offload_to", "disk"},
                                                {"only_trainable_params", "true"},
                                                {"mesh", "dp=2"},
                                                {"gradient_accumulation_steps", "2"},
                                                {"interleave", "2"},
                                                {"sum_micro_batch_losses", "true"},
                                                {"dataset", "full_batch"},
                                                {"fields", "[\"tokens = [-, -]\"]"},
                                                {"ops", "[\"h.*.mlp.c_fc = {{1, 1, 1}, {1, 2}}\"]"},
                                                {"parameters", "[\"h.*.mlp.c_fc.weight = [-, -]\"]"},
                                                {"layerwise", "[\"h.0.mlp.c_fc.weight\"]"},
                                                {"zero", "1"},
                                                {"zero_threshold_kb", "1"},
                                                {"zero_shard_size", "1"},
                                                {"zero_except", "[\"h.*\"]"},
                                                {"search_cost", "communication"},
                                                {"fully_use_devices", "true"},
                                                {"elementwise_op_strategy_follow", "true"},
                                                {"enable_algo_approxi", "true"},
                                                {"algo_approxi_epsilon", "0.5"},
                                                {"tensor_slice_align_enable", "true"},
                                                {"tensor_slice_align_size", "32"},
                                                {"enable_alltoall", "false"},
                                                {"gradient_fp32_sync", "false"},
                                                {"force_fp32_communication", "true"},
                                                {"gradient_accumulation_shard", "false"},
                                                {"collective_reuse", "-1"},
                                                {"collective_reuse_above", "2"},
                                                {"comm_fusion", "false"},
                                                {"all_reduce_fusion", "off"},
                                                {"all_reduce_fusion_config", "[2]"},
                                                {"all_reduce_fusion_mb", "1"},
                                                {"reduce_scatter_fusion", "off"},
                                                {"reduce_scatter_fusion_mb", "1"},
                                                {"all_gather_fusion", "off"},
                                                {"all_gather_fusion_mb", "1"},
                                                {"fusion", "[\"h.* = 2\"]"}};

struct Job {
  int64_t ranks;
  Settings settings;
};
const Job kJobs[] = {{1, {}},
                     {2, {}},
                     {2, {"parallel.zero=1", "parallel.zero_threshold_kb=0"}},
                     {2, {"parallel.zero=3", "parallel.zero_threshold_kb=0", "parallel.gradient_accumulation_steps=2"}},
                     {2, {"parallel.mode=semi_auto_parallel", "parallel.tp=2", "parallel.sp=true"}},
                     {2, {"parallel.mode=semi_auto_parallel", "parallel.cp=2"}},
                     {2, {"parallel.mode=semi_auto_parallel"}},
                     {2, {"parallel.mode=auto_parallel"}},
                     {2, {"train.dtype=bf16"}},
                     {2, {"parallel.pp=2", "parallel.gradient_accumulation_steps=4"}},
                     {2, {"parallel.home=[\"* = disk\"]"}},
                     {2, {"parallel.on=[\"wte = host\"]", "train.recompute=full"}}};

TEST(KeyEffects, table_has_every_key) {
  JobConfig config;
  for (const ConfigKey& key : config_keys(config)) {
    if (!key.name.starts_with("parallel.")) continue;
    const std::string name = key.name.substr(9);
    EXPECT_NE(kBesidePlans.contains(name), kOther.contains(name)) << name;
  }
}

TEST(KeyEffects, of_keys_without_effect_are_said) {
  for (const Job& job : kJobs) {
    const std::optional<Made> usual = made_by(job.settings, job.ranks);
    ASSERT_TRUE(usual);
    for (const auto& [key, value] : kOther) {
      const std::string name = "parallel." + key;
      const bool is_set =
          std::ranges::any_of(job.settings, [&](const std::string& s) { return s.starts_with(name + "="); });
      if (is_set) continue;
      Settings settings = job.settings;
      settings.push_back(name + "=" + value);
      const std::optional<Made> made = made_by(settings, job.ranks);
      if (!made) continue;
      const bool is_said = is_said_of(key, made->remarks);
      if (!is_said && kMayBeSo.contains(key)) continue;
      // It says of the optimizer's state alone that it lies as without; a search leaves that to it.
      if (key == "zero" && made->remarks.find("slices nothing") != std::string::npos) continue;
      EXPECT_EQ(made->plans == usual->plans, is_said)
          << name << " = " << value << " of " << job.ranks << " ranks, "
          << fmt::format("{}", fmt::join(job.settings, " "))
          << (is_said ? " is said to have no effect" : " has no effect, which nobody says");
    }
  }
}

TEST(KeyEffects, steps_or_epochs_say_how_long_and_either_replaces_the_other) {
  const std::string epochs = "[data]\nkind = 'synthetic'\n[train]\nepochs = 3\n";
  const auto length = [&](const std::string& text, const std::vector<std::string>& overrides) {
    const FitOptions fit = parse_config(text, "job.toml", overrides).train.fit;
    return std::pair(fit.steps, fit.epochs);
  };
  EXPECT_EQ(length(epochs, {"train.steps=7"}), std::pair(7L, 0L));
  EXPECT_EQ(length(epochs, {"train.steps=0"}), std::pair(0L, 3L));
  const std::string steps = "[data]\nkind = 'synthetic'\n[train]\nsteps = 7\n";
  EXPECT_EQ(length(steps, {"train.epochs=2"}), std::pair(0L, 2L));
  EXPECT_THROW(length(steps + "epochs = 2\n", {}), Error) << "neither is the last";
  EXPECT_EQ(length(steps, {"train.epochs=2", "train.steps=5"}), std::pair(5L, 0L)) << "the last one stands";
}

}  // namespace
}  // namespace trireme::key_effects_test

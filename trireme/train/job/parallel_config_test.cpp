// The keys of [parallel]: their defaults, their ranges, and what they become.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::parallel_config_test {
namespace {

using testing::HasSubstr;

constexpr const char* kText = "[data]\nkind = \"synthetic\"\n[train]\nsteps = 1\n[parallel]\n";

JobConfig with(const std::string& lines, const std::vector<std::string>& overrides = {}) {
  return parse_config(kText + lines, "job.toml", overrides);
}

template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(exit_code(e.kind()), 2) << "the caller's";
    return e.what();
  }
  return "no error";
}

TEST(ParallelConfig, zero_s_numbers_are_refused_by_name_whatever_the_ranks_and_the_mode) {
  EXPECT_THAT(error_of([] { with("zero_shard_size = 0\n"); }),
              HasSubstr("parallel.zero_shard_size = 0; it must be 1 or more, or -1 for all ranks"));
  EXPECT_THAT(error_of([] { with("zero_shard_size = -2\n"); }), HasSubstr("parallel.zero_shard_size = -2"));
  EXPECT_THAT(error_of([] { with("zero_threshold_kb = -1\n"); }),
              HasSubstr("parallel.zero_threshold_kb = -1; it must be 0 or more"));
  EXPECT_EQ(with("zero_shard_size = -1\nzero_threshold_kb = 0\n").parallel.zero.shard_size, -1);
}

// A place that several ranks or micro-batches fill is a sum over these.
TEST(ParallelConfig, invariant_bits_ask_for_as_many_groups_of_experts_as_the_batch_has_parts) {
  const auto asked = [](int64_t groups, int64_t micro_batches, const std::string& numerics) {
    return error_of([&] {
      parallel_of(
          with(fmt::format("mode = 'semi_auto_parallel'\nep = 2\ngradient_accumulation_steps = {}\n", micro_batches),
               {"model.kind=gpt", "model.experts=4", fmt::format("model.expert_groups={}", groups),
                "train.numerics=" + numerics}),
          4);
    });
  };
  EXPECT_THAT(
      asked(1, 1, "invariant"),
      HasSubstr("train.numerics = 'invariant' with parallel.ep = 2: model.expert_groups = 1, and the batch has 4 "
                "parts, which ranks and micro-batches compute; set it to 4 or a multiple"));
  EXPECT_THAT(asked(4, 2, "invariant"), HasSubstr("has 8 parts"));
  EXPECT_EQ(asked(8, 2, "invariant"), "no error");
  EXPECT_EQ(asked(1, 2, "fast"), "no error");
}

// Contracts 2. Two defaults are not the reference's: gradients are means, and exchanges are allowed.
TEST(ParallelConfig, defaults_are_those_of_the_guide_and_a_new_configuration_has_them_again) {
  JobConfig config = with(
      "mode = \"semi_auto_parallel\"\ndevice_num = 2\ngradients_mean = false\ngradient_fp32_sync = false\n"
      "force_fp32_communication = true\nloss_repeated_mean = false\nparameter_broadcast = true\nenable_alltoall = "
      "false\n"
      "dataset = \"full_batch\"\nzero = 2\nzero_threshold_kb = 1\nzero_shard_size = 2\nmachine = \"m\"\nstrategy = "
      "\"s\"\n");
  EXPECT_EQ(config.parallel.device_num, 2);
  EXPECT_TRUE(config.parallel.communication.all_in_f32);
  config = JobConfig{};
  const auto& p = config.parallel;
  EXPECT_EQ(p.device_num, -1);
  EXPECT_EQ(p.mode, Mode::kDataParallel);
  EXPECT_TRUE(p.gradients_mean);
  EXPECT_TRUE(p.communication.gradients_in_f32);
  EXPECT_TRUE(p.loss_repeated_mean);
  EXPECT_FALSE(p.parameter_broadcast);
  EXPECT_EQ(p.dataset, "data_parallel");
  EXPECT_EQ(p.zero.level, 0);
  EXPECT_EQ(p.zero.threshold_kb, 64);
  EXPECT_EQ(p.zero.shard_size, -1);
  EXPECT_TRUE(p.communication.all_to_all);
  EXPECT_FALSE(p.communication.all_in_f32);
  EXPECT_EQ(p.strategy, "");
  EXPECT_EQ(p.save_strategy, "");
  EXPECT_FALSE(p.only_trainable_params);
  EXPECT_EQ(p.machine, "");
  EXPECT_EQ(to_toml(config), to_toml(JobConfig{}));
}

TEST(ParallelConfig, values_out_of_range_are_refused_with_the_range) {
  EXPECT_THAT(error_of([] { with("device_num = 0\n"); }),
              HasSubstr("parallel.device_num = 0; it must be from 1 to 4096"));
  EXPECT_THAT(error_of([] { with("device_num = 4097\n"); }),
              HasSubstr("parallel.device_num = 4097; it must be from 1 to 4096"));
  EXPECT_THAT(error_of([] { with("mode = \"auto\"\n"); }), HasSubstr("parallel.mode = 'auto'; it must be one of"));
  EXPECT_THAT(error_of([] { with("zero = 4\n"); }), HasSubstr("parallel.zero = 4; it must be 0, 1, 2 or 3"));
  EXPECT_THAT(error_of([] { with("enable_alltoall = 1\n"); }), HasSubstr("must be true or false; found 1"));
  EXPECT_THAT(error_of([] { with("enable_all2all = true\n"); }), HasSubstr("Did you mean 'parallel.enable_alltoall'?"));
  EXPECT_THAT(error_of([] { with("gradient_fp32_sinc = true\n"); }),
              HasSubstr("Did you mean 'parallel.gradient_fp32_sync'?"));
}

TEST(ParallelConfig, contracts_14_2_keys_of_tiers_are_read_and_refused_by_name) {
  const JobConfig c = with(
      "device_memory = \"1GB\"\ndevice_ratio = 0.5\nauto_offload = false\noffload_to = \"disk\"\ndisk_block = "
      "\"64KiB\"\ndisk_queue = 8\nupdate_part = \"1MiB\"\nprefetch = [\"h.* = 2\"]\n");
  const Parallel p = parallel_of(c, 1);
  EXPECT_EQ(p.tiers.of(Tier::kDevice), MemorySize("500MB"));
  EXPECT_EQ(p.tier_ways.offload_to, Tier::kDisk);
  EXPECT_EQ(p.tier_ways.disk_block, MemorySize(64 << 10));
  EXPECT_EQ(p.tier_ways.disk_queue, 8);
  EXPECT_EQ(p.tier_ways.update_part, MemorySize(1 << 20));
  EXPECT_EQ(to_string(p.tier_ways.prefetch.at(0)), "h.* = 2");
  EXPECT_THAT(error_of([] { parallel_of(with("offload_to = \"disk\"\n"), 1); }),
              HasSubstr("with parallel.auto_offload = true the plan chooses that"));
  EXPECT_THAT(error_of([] { with("device_ratio = 1.5\n"); }), HasSubstr("it must be above 0 and at most 1"));
  EXPECT_THAT(error_of([] { with("disk_queue = 0\n"); }),
              HasSubstr("parallel.disk_queue = 0; it must be from 1 to 64"));
  EXPECT_THAT(error_of([] { with("prefetch = [\"h.*\"]\n"); }), HasSubstr("is not \"scope = readers\""));
  EXPECT_THAT(error_of([] { with("host_mem_block_size = \"1GB\"\n"); }), HasSubstr("the host's memory is no pool"));
  EXPECT_THAT(error_of([] { with("memory_offload = true\n"); }), HasSubstr("values leave the device's memory where"));
  for (const auto& [other, own] :
       {std::pair("max_device_memory", "device_memory"), std::pair("offload_param", "offload_to"),
        std::pair("offload_cpu_size", "host_memory"), std::pair("offload_disk_size", "disk"),
        std::pair("offload_path", "disk"), std::pair("aio_block_size", "disk_block"),
        std::pair("aio_queue_size", "disk_queue"), std::pair("hbm_ratio", "device_ratio"),
        std::pair("cpu_ratio", "host_ratio"), std::pair("default_prefetch", "prefetch")}) {
    EXPECT_THAT(error_of([&] { with(fmt::format("{} = 1\n", other)); }),
                HasSubstr(fmt::format("Did you mean 'parallel.{}'?", own)));
  }
  EXPECT_THAT(error_of([] { with("enable_pinned_mem = true\n"); }),
              testing::AllOf(HasSubstr("and none is needed"), HasSubstr("for cuda its pages are locked wherever")));
  EXPECT_THAT(error_of([] { with("enable_aio = true\n"); }), HasSubstr("by io_uring or, where that is forbidden"));
}

// Of the key, the one remark; "" where it has an effect.
std::string remark_of(const std::string& key, const std::string& lines,
                      const std::vector<std::string>& overrides = {}) {
  std::string out;
  for (const std::string& remark : remarks(with(lines, overrides), 2)) {
    if (remark.starts_with("parallel." + key + " = ")) out += remark;
  }
  return out;
}

TEST(ParallelConfig, sizes_of_nothing_are_refused) {
  for (const char* line : {"device_memory = \"0\"\n", "host_memory = \" 0\"\n", "disk = \"/tmp:0\"\n"})
    EXPECT_THAT(error_of([&] { with(line); }), HasSubstr("leaves a rank nothing; give more, or leave the size out"));
  EXPECT_NO_THROW(with("device_memory = \"\"\ndisk = \"/tmp\"\nupdate_part = \"0\"\n"));
}

TEST(ParallelConfig, what_is_asked_of_several_ranks_is_said_of_one_in_one_line) {
  const JobConfig config = with("zero = 1\nzero_threshold_kb = 1\ntransport = \"shm\"\ncollective_reuse = -1\n");
  EXPECT_THAT(
      remarks(config, 1),
      testing::ElementsAre("parallel.transport = 'shm', parallel.zero = 1, parallel.zero_threshold_kb = 1, "
                           "parallel.collective_reuse = -1 have no effect on one rank, which exchanges nothing"));
  EXPECT_THAT(remarks(config, 2), testing::IsEmpty());
  EXPECT_THAT(
      remarks(with("fusion = [\"h.* = 2\"]\n"), 1),
      testing::ElementsAre("parallel.fusion = [ 'h.* = 2' ] has no effect on one rank, which exchanges nothing"));
  EXPECT_THAT(remark_of("gradients_mean", "gradients_mean = false\npp = 2\ngradient_accumulation_steps = 2\n"),
              HasSubstr("has no effect with parallel.pp = 2, by which each part has one rank"));
}

TEST(ParallelConfig, the_cost_of_a_search_is_that_of_recursive_programming) {
  const std::string line = "mode = \"auto_parallel\"\nsearch_cost = \"communication\"\n";
  EXPECT_EQ(remark_of("search_cost", line), "");
  EXPECT_EQ(to_string(parallel_of(with(line), 2).search), "recursive_programming by communication");
  EXPECT_THAT(remark_of("search_cost", line + "search = \"sharding_propagation\"\n"),
              HasSubstr("has no effect with parallel.search = 'sharding_propagation'"));
  EXPECT_THAT(error_of([] { with("search_cost = \"bytes\"\n"); }),
              HasSubstr("parallel.search_cost = 'bytes'; it must be one of 'time' or 'communication'"));
}

TEST(ParallelConfig, an_override_may_have_the_spaces_of_a_file) {
  const JobConfig config = with("", {"train.batch = 3", "parallel.home = [\"* = host\", \"*/state = disk\"]"});
  EXPECT_EQ(config.train.fit.batch, 3);
  EXPECT_EQ(config.parallel.homes.size(), 2U);
  EXPECT_EQ(with("", {"model.kind = mlp", "model.hidden = [8, 4]"}).model.kind, "mlp");  // which keys there are
}

TEST(ParallelConfig, sums_come_in_no_other_order_without_micro_batches) {
  const std::string line = "gradient_accumulation_shard = false\n";
  EXPECT_THAT(remark_of("gradient_accumulation_shard", line + "zero = 2\n"),
              HasSubstr("has no effect with parallel.gradient_accumulation_steps = 1"));
  for (const char* more : {"gradient_accumulation_steps = 2\n", "interleave = 2\n", "mesh = \"dp=2,micro_batch=2\"\n"})
    EXPECT_EQ(remark_of("gradient_accumulation_shard", line + more), "") << more;
}

TEST(ParallelConfig, ways_of_tiers_have_no_effect_where_nothing_lies_elsewhere) {
  const std::pair<const char*, const char*> kKeys[] = {{"update_part", "update_part = \"1MiB\"\n"},
                                                       {"prefetch", "prefetch = [\"h.* = 2\"]\n"},
                                                       {"disk_block", "disk_block = \"64KiB\"\n"},
                                                       {"disk_queue", "disk_queue = 8\n"},
                                                       {"auto_offload", "auto_offload = false\n"}};
  const auto without = [&](const std::string& lines) {
    std::string out;
    for (const auto& [key, line] : kKeys) {
      if (!remark_of(key, lines + line).empty()) out += fmt::format("{} ", key);
    }
    return out;
  };
  EXPECT_EQ(without(""), "update_part prefetch disk_block disk_queue auto_offload ");
  EXPECT_EQ(without("home = [\"* = device\"]\n"), "update_part prefetch disk_block disk_queue auto_offload ");
  EXPECT_EQ(without("home = [\"* = host\"]\n"), "disk_block disk_queue auto_offload ");
  EXPECT_EQ(without("home = [\"*/state = disk\"]\n"), "auto_offload ");
  EXPECT_EQ(without("keep = [\"h.* = host\"]\n"), "update_part disk_block disk_queue auto_offload ");
  EXPECT_EQ(without("keep = [\"h.* = disk\"]\n"), "update_part auto_offload ");
  EXPECT_EQ(without("on = [\"wte = host\"]\n"), "update_part disk_block disk_queue auto_offload ");
  EXPECT_EQ(without("optimizer_on = \"host\"\n"), "prefetch disk_block disk_queue auto_offload ");
  EXPECT_EQ(without("optimizer_on = \"host\"\nhost_memory = \"1GB\"\ndisk = \"/scratch:1GB\"\n"), "");
  EXPECT_EQ(without("device_memory = \"1GB\"\n"), "disk_block disk_queue ");
  EXPECT_EQ(without("device_memory = \"1GB\"\ndisk = \"/tmp\"\n"), "");
  EXPECT_THAT(remark_of("update_part", "update_part = \"1MiB\"\n"),
              HasSubstr("parallel.update_part = '1MiB' has no effect with no parameters or state on the host"));
  EXPECT_EQ(remark_of("auto_offload", "auto_offload = false\noffload_to = \"disk\"\n"), "");
}

TEST(ParallelConfig, sums_and_what_is_kept_have_no_effect_where_all_is_as_asked_anyway) {
  EXPECT_THAT(remark_of("gradient_fp32_sync", "gradient_fp32_sync = false\n"), HasSubstr("train.dtype = 'f32'"));
  EXPECT_THAT(remark_of("force_fp32_communication", "force_fp32_communication = true\n"),
              HasSubstr("train.dtype = 'f32'"));
  EXPECT_EQ(remark_of("gradient_fp32_sync", "gradient_fp32_sync = false\n", {"train.dtype=bf16"}), "");
  EXPECT_EQ(remark_of("gradients_mean", "gradients_mean = false\n"), "");
  EXPECT_THAT(remark_of("gradients_mean", "gradients_mean = false\nmode = \"semi_auto_parallel\"\n"),
              HasSubstr("has no effect with parallel.mode = 'semi_auto_parallel'"));
  EXPECT_THAT(remark_of("loss_repeated_mean", "loss_repeated_mean = false\n"), HasSubstr("counts once"));
  EXPECT_THAT(remark_of("keep", "keep = [\"h.* = device\"]\n"), HasSubstr("train.recompute = 'none'"));
  EXPECT_EQ(remark_of("keep", "keep = [\"h.* = again\", \"h.0 = device\"]\n"), "");
  EXPECT_THAT(remark_of("recompute_communication", "recompute_communication = false\nkeep = [\"h.* = host\"]\n"),
              HasSubstr("train.recompute = 'none'"));
}

// The loss is that of whole logits then; a mesh or a strategy of the job's own may cut them.
TEST(ParallelConfig, a_vocabulary_that_nothing_cuts_has_no_effect) {
  const std::string line = "mode = \"semi_auto_parallel\"\nvocabulary = true\n";
  EXPECT_THAT(remark_of("vocabulary", line), HasSubstr("has no effect with parallel.tp = 1"));
  EXPECT_FALSE(has_loss_in_parts(with(line)));
  for (const char* more : {"tp = 2\n", "mesh = \"dp=1,tp=2\"\n", "strategy = \"file\"\n"}) {
    EXPECT_EQ(remark_of("vocabulary", line + more), "") << more;
    EXPECT_TRUE(has_loss_in_parts(with(line + more))) << more;
  }
}

TEST(ParallelConfig, the_number_of_ranks_must_be_the_one_asked_for) {
  EXPECT_NO_THROW(parallel_of(with("device_num = 2\n"), 2));
  EXPECT_THAT(error_of([] { parallel_of(with("device_num = 2\n"), 4); }),
              HasSubstr("parallel.device_num = 2 but the job has 4 ranks; start 2 ranks"));
}

TEST(ParallelConfig, keys_of_communication_reach_the_plan) {
  const Parallel usual = parallel_of(with(""), 2);
  EXPECT_TRUE(usual.communication.all_to_all);
  EXPECT_TRUE(usual.communication.gradients_in_f32);
  EXPECT_FALSE(usual.communication.all_in_f32);
  EXPECT_FALSE(usual.communication.machine);
  const Parallel other =
      parallel_of(with("enable_alltoall = false\ngradient_fp32_sync = false\nforce_fp32_communication = true\n"), 2);
  EXPECT_FALSE(other.communication.all_to_all);
  EXPECT_FALSE(other.communication.gradients_in_f32);
  EXPECT_TRUE(other.communication.all_in_f32);
}

using Mode = FusionOfKind::Mode;

Fusion fusion_of(const std::string& keys) {
  return parallel_of(with(keys), 2).communication.fusion;
}

TEST(ParallelConfig, contracts_15_2_fusion_is_chosen_by_size_by_numbers_or_not_at_all) {
  const Fusion usual = fusion_of("");
  EXPECT_TRUE(usual.is_on);
  EXPECT_EQ(usual.all_reduce, FusionOfKind());
  EXPECT_EQ(usual.all_gather, FusionOfKind());
  EXPECT_TRUE(usual.ids.empty());
  EXPECT_EQ(fusion_of("all_reduce_fusion = false\n").all_reduce.mode, Mode::kOff);
  EXPECT_EQ(fusion_of("all_reduce_fusion = true\n").all_reduce, FusionOfKind());
  EXPECT_EQ(fusion_of("all_reduce_fusion_mb = 32\n").all_reduce.bytes, 32 << 20);
  EXPECT_THAT(fusion_of("all_reduce_fusion_config = [20, 35]\n").all_reduce.ends, testing::ElementsAre(20, 35));
  EXPECT_EQ(fusion_of("all_reduce_fusion = \"size\"\nall_reduce_fusion_mb = 32\n").all_reduce.mode, Mode::kSize);
  EXPECT_EQ(fusion_of("all_gather_fusion = \"off\"\n").all_gather.mode, Mode::kOff);
  EXPECT_EQ(fusion_of("all_gather_fusion_mb = 3\n").all_gather.bytes, 3 << 20);
  EXPECT_EQ(fusion_of("reduce_scatter_fusion_mb = 5\n").reduce_scatter.bytes, 5 << 20);
  EXPECT_FALSE(fusion_of("comm_fusion = false\n").is_on);
}

TEST(ParallelConfig, fusions_that_contradict_themselves_are_refused) {
  const auto refused = [](const std::string& keys) { return error_of([&] { fusion_of(keys); }); };
  EXPECT_THAT(refused("all_reduce_fusion_mb = -1\n"),
              HasSubstr("parallel.all_reduce_fusion_mb = -1; it must be from 0 to 1048576"));
  EXPECT_THAT(refused("all_reduce_fusion_config = [5, 2]\n"),
              HasSubstr("parallel.all_reduce_fusion_config has 2 after 5; it must be"));
  EXPECT_THAT(refused("all_reduce_fusion_mb = 8\nall_reduce_fusion_config = [2]\n"),
              HasSubstr("both say where sums are cut"));
  EXPECT_THAT(refused("all_reduce_fusion = false\nall_reduce_fusion_mb = 8\n"),
              HasSubstr("parallel.all_reduce_fusion = off with a size"));
  EXPECT_THAT(refused("all_reduce_fusion = \"sise\"\n"), HasSubstr("Did you mean 'size'?"));
  EXPECT_THAT(refused("all_reduce_fusion = \"index\"\n"), HasSubstr("goes by parallel.all_reduce_fusion_config"));
  EXPECT_THAT(refused("comm_fusion = false\nfusion = [\"h.* = 2\"]\n"), HasSubstr("parallel.comm_fusion = false, and"));
}

// Section 15.4 of the contracts, test 5: of what is an error.
TEST(ParallelConfig, contracts_15_4_5_gathers_by_numbers_and_sizes_of_0_are_refused) {
  const auto refused = [](const std::string& keys) { return error_of([&] { fusion_of(keys); }); };
  EXPECT_THAT(refused("all_gather_fusion = \"index\"\n"), HasSubstr("parallel.all_gather_fusion = 'index'; gradients"));
  EXPECT_THAT(refused("reduce_scatter_fusion = \"index\"\n"), HasSubstr("parallel.reduce_scatter_fusion = 'index'"));
  for (const std::string kind : {"all_reduce", "reduce_scatter", "all_gather"}) {
    EXPECT_THAT(refused(kind + "_fusion = \"size\"\n" + kind + "_fusion_mb = 0\n"),
                HasSubstr("goes by parallel." + kind + "_fusion_mb; set it to 1 or more"));
  }
}

TEST(ParallelConfig, rules_of_fusion_are_names_and_numbers) {
  EXPECT_THAT(fusion_of("fusion = [\"h.* = 2\", \"head=0\"]\n").ids,
              testing::ElementsAre(FusionRule{"h.*", 2}, FusionRule{"head", 0}));
  for (const std::string rule : {"h.*", "= 2", "h.* = ", "h.* = -1", "h.* = two"}) {
    EXPECT_THAT(error_of([&] { fusion_of("fusion = [\"" + rule + "\"]\n"); }),
                HasSubstr("parallel.fusion: '" + rule + "' is not \"name = number\""));
  }
}

TEST(ParallelConfig, costs_of_links_come_from_the_machines_file) {
  const TempDirectory directory;
  const std::string path = directory / "machine.toml";
  Machine machine = Machine::this_host();
  machine.name = "two racks";
  machine.hosts = 2;
  machine.devices_per_host = 2;
  machine.levels = {{"host", 2, 1e-6, 1e9}, {"rack", 4, 1e-5, 1e8}};
  write_machine(machine, path);
  const Parallel parallel = parallel_of(with("machine = \"" + path + "\"\n"), 4);
  const ReshardCosts costs = reshard_costs(parallel.communication, parse_mesh("dp=2,tp=2"));
  EXPECT_EQ(costs.of(0).bytes_per_s, 1e8);
  EXPECT_EQ(costs.of(1).bytes_per_s, 1e9);
  EXPECT_THAT(error_of([&] { reshard_costs(parallel.communication, parse_mesh("dp=8")); }),
              HasSubstr("machine 'two racks' has 4 devices but the job has 8 ranks"));
  EXPECT_THAT(error_of([] { parallel_of(with("machine = \"no/such.toml\"\n"), 2); }),
              HasSubstr("parallel.machine: there is no file 'no/such.toml'"));
}

TEST(ParallelConfig, positions_that_do_not_divide_over_ranks_are_told_by_their_keys) {
  JobConfig config = with("mode = \"semi_auto_parallel\"\ncp = 3\n");
  const auto error = [&] { return error_of([&] { parallel_of(config, 3); }); };
  set_keys(config, {"data.seq=128", "parallel.cp_algorithm=ring"});
  EXPECT_EQ(
      error(),
      "configuration: the 128 positions of a sample (data.seq) do not divide over parallel.cp = 3 ranks; use 126 or "
      "129 positions, or another parallel.cp");
  set_keys(config, {"data.seq=2"});
  EXPECT_THAT(error(), HasSubstr("use 3 positions"));
  set_keys(config, {"data.seq=129"});
  EXPECT_EQ(error(), "no error");
}

TEST(ParallelConfig, a_mode_that_cuts_nothing_is_told_beside_what_is_given) {
  EXPECT_EQ(
      error_of([] { parallel_of(with("mode = \"data_parallel\"\ntp = 2\nops = [\"h.* = [-, -]\"]\n"), 2); }),
      "configuration: parallel.tp, ops are for parallel.mode = 'semi_auto_parallel'; the mode is 'data_parallel'. "
      "Set that mode, or leave them out");
}

TEST(ParallelConfig, slices_of_weights_are_not_saved_as_their_layouts) {
  EXPECT_THAT(error_of([] { parallel_of(with("only_trainable_params = true\nzero = 3\n"), 2); }),
              HasSubstr("parallel.only_trainable_params = true with parallel.zero = 3"));
  const TrainerOptions options = trainer_options(with("only_trainable_params = true\nsave_strategy = \"s.txt\"\n"), 2);
  EXPECT_EQ(options.save_strategy, "s.txt");
  EXPECT_TRUE(options.only_trained_parameters);
}

TEST(ParallelConfig, what_modules_ask_counts_in_semi_auto_mode_only) {
  EXPECT_FALSE(parallel_of(with("mode = \"data_parallel\"\n"), 2).follow_requests);
  EXPECT_TRUE(parallel_of(with("mode = \"semi_auto_parallel\"\n"), 2).follow_requests);
}

// What is asked of a cut is read with the file, whatever becomes of it later.
TEST(ParallelConfig, text_that_stands_for_nothing_is_refused_with_its_key) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"mesh = \"dp=2,tp\"", "configuration: parallel.mesh: 'dp=2,tp' is not a mesh: 'tp' has no size"},
      {"dataset = \"batch\"", "configuration: parallel.dataset: dataset strategy 'batch'; it must be data_parallel"},
      {"ops = [\"h.0\"]", "configuration: parallel.ops: 'h.0' must be \"pattern = cuts\""},
      {"ops = [\"h.0 = \"]", "configuration: parallel.ops: 'h.0 = ' must be \"pattern = cuts\""},
      {"ops = [\" = [dp]\"]", "configuration: parallel.ops: ' = [dp]' must be \"pattern = cuts\""},
      {"parameters = [\"w =\"]", "configuration: parallel.parameters: 'w =' must be \"pattern = cuts\""},
      {"ops = [\"h.0/relu#x = [dp]\"]", "configuration: parallel.ops: rule 'h.0/relu#x': 'x' is not an occurrence"},
      {"ops = [\"h.0 = {{2, x}}\"]", "configuration: parallel.ops: cuts '{{2, x}}': 'x' is not a number of parts"},
      {"fields = [\"ids = dp\"]", "configuration: parallel.fields: 'dp' is not a layout"},
      {"parameters = [\"w = [dp, \"]", "configuration: parallel.parameters: '[dp,' is not a layout"},
      {"layerwise = [\"w = tp\"]", "configuration: parallel.layerwise: 'tp' is not a layout"},
      {"stages = [\"h.0 = first\"]", "configuration: parallel.stages: 'h.0 = first' is not \"scope = stage\""},
      {"keep = [\"h.* = never\"]", "configuration: parallel.keep: 'h.* = never': after '=' stands 'device'"},
      {"keep = [\"h.* = memory\"]",
       "configuration: parallel.keep: 'h.* = memory': what is kept in the device's memory "
       "is 'device', as in parallel.home"}};
  for (const auto& [line, message] : kWrong)
    EXPECT_THAT(error_of([&] { with(std::string(line) + "\n"); }), testing::StartsWith(message)) << line;
}

TEST(ParallelConfig, what_is_asked_of_a_cut_is_written_as_it_was_read) {
  const std::string lines =
      "mesh = 'dp=2,tp=2'\ndataset = '{{4, 1}, {4}}'\nfields = ['ids = [dp, tp]']\n"
      "ops = ['h.*.mlp = [dp, -], [tp, -] -> [dp*tp, -]', 'bn/relu#1 = cross_batch']\nparameters = ['w = [-, tp]']\n"
      "layerwise = ['a.w = [tp, -]', 'b']\nstages = ['h.0..5 = 0']\nkeep = ['h.0 = again']\n";
  const std::string text = to_toml(with(lines));
  EXPECT_EQ(to_toml(parse_config(text, "again.toml")), text);
  for (const char* part : {"dp=2,tp=2", "{{4, 1}, {4}}", "ids = [dp, tp]", "h.*.mlp = [dp, -], [tp, -] -> [dp*tp, -]",
                           "bn/relu#1 = cross_batch", "w = [-, tp]", "a.w = [tp, -]", "h.0..5 = 0", "h.0 = again"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(ParallelConfig, contracts_16_5_reuse_is_off_unless_it_is_a_number) {
  EXPECT_EQ(with("").parallel.communication.reuse, 0);
  EXPECT_EQ(with("collective_reuse = 0\n").parallel.communication.reuse, 0);
  EXPECT_EQ(with("collective_reuse = -1\n").parallel.communication.reuse, -1);
  EXPECT_THAT(error_of([] { with("collective_reuse = \"abc\"\n"); }), HasSubstr("parallel.collective_reuse"));
}

// A timetable of the user's own, read from its file for 8 ranks.
TEST(ParallelConfig, contracts_9_5_timetables_that_cannot_run_are_refused_with_the_unit_the_crew_and_its_ranks) {
  const TempDirectory folder;
  const auto of = [&](const std::string& crews) {
    atomic_write(folder / "mine", "timetable mine stages=2 micro_batches=2\n" + crews);
    return error_of([&] {
      parallel_of(with(fmt::format(
                      "mode = \"semi_auto_parallel\"\npp = 2\ngradient_accumulation_steps = 2\nschedule = \"{}\"\n",
                      folder / "mine")),
                  8);
    });
  };
  EXPECT_EQ(of("crew 0: F0.0 F0.1 B0.0 B0.1\ncrew 1: F1.0 B1.0 F1.1 B1.1\n"), "no error");
  const std::string deadlocks = of("crew 0: F0.0 B0.0 F0.1 B0.1\ncrew 1: F1.0 F1.1 B1.0 B1.1\n");
  EXPECT_THAT(deadlocks, HasSubstr("cannot end: crew 0 waits before B0.0 for B1.0 of crew 1, crew 1 waits before F1.1 "
                                   "for F0.1 of crew 0"));
  EXPECT_THAT(deadlocks, HasSubstr("a crew is 4 of the 8 ranks: crew 0 begins with rank 0, crew 1 with rank 4"));
  EXPECT_THAT(deadlocks, HasSubstr(fmt::format("while reading '{}'", folder / "mine")));
  EXPECT_THAT(of("crew 0: F0.0 F0.1 B0.0 B0.1\ncrew 1: F1.0 B1.0 F1.1\n"), HasSubstr("crew 1 lacks B1.1"));
  EXPECT_THAT(of("crew 0: F0.0 F0.1 B0.0 B0.1\ncrew 1: B1.0 F1.0 F1.1 B1.1\n"),
              HasSubstr("crew 1 has B1.0 before F1.0"));
  EXPECT_THAT(of("crew 0: F0.0 F0.1 B0.0 B0.1 F1.0 B1.0\ncrew 1: F1.0 B1.0 F1.1 B1.1\n"),
              HasSubstr("F1.0 stands twice, the second time in crew 1"));
}

TEST(ParallelConfig, what_other_systems_call_a_key_is_told_by_its_name_here) {
  const auto refusal = [](const std::string& line) { return error_of([&] { with(line); }); };
  EXPECT_THAT(refusal("pipeline_stages = 2\n"),
              HasSubstr("no key 'parallel.pipeline_stages'. Did you mean 'parallel.pp'?"));
  EXPECT_THAT(refusal("full_batch = true\n"), HasSubstr("Did you mean 'parallel.dataset'?"));
  EXPECT_THAT(refusal("mp_comm_recompute = true\n"), HasSubstr("Did you mean 'parallel.recompute_communication'?"));
  EXPECT_THAT(refusal("micro_batches = 2\n"), HasSubstr("Did you mean 'parallel.gradient_accumulation_steps'?"));
  EXPECT_THAT(refusal("seq_split_num = 2\n"), HasSubstr("Did you mean 'parallel.seq_chunks'?"));
  EXPECT_THAT(refusal("enable_parallel_optimizer = true\n"), HasSubstr("Did you mean 'parallel.zero'?"));
  EXPECT_THAT(refusal("global_rank = 1\n"),
              HasSubstr("no key 'parallel.global_rank', and none is needed: the launcher gives each rank its number"));
}

}  // namespace
}  // namespace trireme::parallel_config_test

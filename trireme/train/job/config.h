// The configuration of a training job as a TOML file: what `trireme train` reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/data/data_spec.h"
#include "trireme/nn/model_spec.h"
#include "trireme/nn/optimizer.h"
#include "trireme/train/step/assembly.h"
#include "trireme/train/step/fit_options.h"

namespace trireme {

// Attention over parallel.cp: by heads, with an all-to-all to them and back; keys and values travel around; or both,
// some ranks sharing heads. Auto: by heads where they divide, otherwise a ring.
enum class ContextAlgorithm { kAuto, kUlysses, kRing, kHybrid };
inline constexpr NameOf<ContextAlgorithm> kContextAlgorithms[] = {{"auto", ContextAlgorithm::kAuto},
                                                                  {"ulysses", ContextAlgorithm::kUlysses},
                                                                  {"ring", ContextAlgorithm::kRing},
                                                                  {"hybrid", ContextAlgorithm::kHybrid}};

// What a job's file says, each part in the struct of its owner; the defaults are those of a job. The sections [model]
// and [data], and the optimizer's numbers in [train], have the keys of their kinds, which choose_kinds sets: `spec` is
// that of `kind`, `numbers` that of `optimizer`.
struct JobConfig {
  std::string name = "run";
  struct {
    std::string kind = "gpt";
    Copied<nn::ModelSpec> spec = nn::model_spec("gpt");
  } model;
  struct {
    std::string kind = "text";
    Copied<data::DataSpec> spec = data::data_spec("text");
    double validation = 0.1;
  } data;
  struct {
    FitOptions fit;
    StepOptions step = {.clip_norm = 1};  // but for what follows from the rest (trainer_options)
    std::string device = "cpu";           // backend/device.h
    PassOptions passes;
    std::string optimizer = "adamw";
    double lr = 1e-3;
    Copied<nn::OptimizerSpec> numbers = nn::optimizer_spec("adamw");  // the optimizer's others
    Schedule schedule = {.kind = Schedule::Kind::kCosine};
    double label_smoothing = 0;
    int64_t sample_tokens = 320;
    TuningPlace tuning = "auto";
    std::string trace;  // file
    int64_t trace_steps = 3;
  } train;
  struct {
    Mode mode = Mode::kDataParallel;
    SearchOptions search = {.kind = SearchKind::kRecursiveProgramming};  // of mode auto_parallel
    std::string transport = "auto";                                      // auto | shm | ucx | mpi
    int64_t device_num = -1;                                             // -1: as many ranks as are started
    bool gradients_mean = true, parameter_broadcast = false;
    bool loss_repeated_mean = true;  // changes nothing (see the guide)
    std::string machine, rates;      // files
    Communication communication = {.shard_accumulation = true};
    int64_t all_reduce_fusion_mb = 0, reduce_scatter_fusion_mb = 0, all_gather_fusion_mb = 0;  // 0: not given
    std::string strategy, save_strategy;                                                       // files
    bool only_trainable_params = false;                                                        // of save_strategy
    MeshSpec mesh;  // and the rest: parallel/parallel.h and train/job/parallel_settings.h
    int64_t tp = 1, cp = 1, ep = 1;
    int64_t pp = 1, virtual_stages = 0, seq_chunks = 0;  // 0: as few as the schedule takes
    std::string schedule = "1f1b";                       // a name, or a file
    std::vector<StageRule> stages;
    SliceCrossings slice_crossings = SliceCrossings::kAuto;
    ContextAlgorithm cp_algorithm = ContextAlgorithm::kAuto;
    int64_t ulysses_degree = 0;  // of hybrid; 0: as many ranks as divide the heads
    bool sp = false, vocabulary = false;
    std::vector<Recompute::Rule> keep;
    std::vector<HomeRule> homes;
    OnHost on_host;
    TierSizes tiers;
    TierWays tier_ways;
    bool recompute_communication = true, optimizer_comm_recompute = true, recompute_slice_activation = false;
    int64_t gradient_accumulation_steps = 1, interleave = 1;
    bool sum_micro_batch_losses = false;
    DatasetStrategy dataset;
    std::vector<LayoutRule> fields, parameters;
    std::vector<OpRule> ops;
    std::vector<PieceRule> layerwise;
    OptimizerParallel zero;
  } parallel;
};

// One key of the file: a row (base/keys.h) with its section.
struct ConfigKey {
  std::string name;  // "train.lr"
  KeyTarget target;
  std::string_view doc;
  Key row = {};
  std::string_view section() const { return std::string_view(name).substr(0, name.find('.') + 1); }  // "train."
};
// Those of the configuration's kinds.
std::vector<ConfigKey> config_keys(JobConfig& config);

// An override with the spaces that a file has, "train.lr = 0.001", without them.
std::string plain_override(std::string_view text);
// Reads the file, then `overrides` of the form key=value. Unknown keys, values of another type and values out of range
// throw kInvalidArgument naming file, line, key and what would be right.
JobConfig read_config(const std::string& path, const std::vector<std::string>& overrides = {});
JobConfig parse_config(std::string_view text, const std::string& source,
                       const std::vector<std::string>& overrides = {});
// Replaces keys of a configuration that was made in a program, as parse_config does; set_keys does not look whether
// they go together.
void set_keys(JobConfig& config, const std::vector<std::string>& overrides);
void override_keys(JobConfig& config, const std::vector<std::string>& overrides);
// "parallel.mode=semi_auto_parallel": sets the key where the configuration has its default.
void set_where_usual(JobConfig& config, const std::string& key_and_value);
// What is asked of so many ranks and has no effect, in words.
std::vector<std::string> remarks(const JobConfig& config, int64_t ranks);
// The keys at which a configuration has another value than one of the same kinds, "train.lr = 0.1".
std::vector<std::string> keys_unlike(JobConfig config, JobConfig other);
std::string to_toml(JobConfig config);  // reads back to the same configuration

}  // namespace trireme

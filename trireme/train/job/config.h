// The configuration of a training job as a TOML file: what `trireme train` reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/data/source.h"
#include "trireme/nn/optimizer.h"
#include "trireme/train/step/assembly.h"
#include "trireme/train/step/fit_options.h"

namespace trireme {

struct JobConfig {
  struct {
    std::string kind = "gpt";  // gpt | llama | mlp | lenet | resnet
    int64_t layers = 4;
    int64_t width = 256;
    int64_t heads = 4;
    int64_t kv_heads = 0;   // of llama, as are the next three; 0: as many as heads
    int64_t mlp_width = 0;  // 0: 8/3 of the width, rounded up to a multiple of 64
    double rope_theta = 10000;
    bool tied = false;
    int64_t vocabulary = 256;
    double dropout = 0;
    int64_t experts = 0, top_k = 2;
    double capacity_factor = 1.25, aux_loss_factor = 0.01;
    int64_t expert_groups = 1;
    std::vector<int64_t> hidden = {512, 512};  // of mlp
    int64_t classes = 10;
    int64_t depth = 50;           // of resnet, as are the next two
    std::vector<int64_t> blocks;  // none: as the depth says
    int64_t stem = 64;
  } model;
  struct {
    std::string kind = "text";  // text | idx | synthetic
    std::vector<std::string> paths;
    std::vector<std::string> extensions;
    std::string images, labels;
    double mean = 0.1307, std = 0.3081;        // of idx: MNIST's
    std::vector<int64_t> image = {28, 28, 1};  // height, width, channels
    int64_t seq = 256;
    int64_t samples = 4096;  // of synthetic
    double validation = 0.1;
    int64_t validation_blocks = 1;
  } data;
  struct {
    int64_t steps = 0;
    int64_t epochs = 0;
    int64_t batch = 32;
    std::string dtype = "f32";      // f32 | bf16
    std::string numerics = "fast";  // fast | invariant
    bool recompute = false;
    int64_t loss_pieces = 1;
    std::string optimizer = "adamw";  // sgd | adam | adamw | lamb
    double lr = 1e-3;
    double momentum = 0.9;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double weight_decay = 0.01;
    std::string schedule = "cosine";
    int64_t warmup = 0;
    double final_ratio = 0.1;
    double clip = 1.0;
    double label_smoothing = 0;
    int64_t eval_every = 0;
    int64_t eval_batches = 0;
    int64_t eval_batch = 0;  // 0: as the batch
    int64_t save_every = 0;
    double save_every_minutes = 0;
    std::string measure = "loss";  // loss | accuracy
    bool keep_best = false;
    int64_t patience = 0;
    double min_improvement = 0;
    bool merged_save = false;
    int64_t sample_tokens = 320;
    int64_t keep = 2;
    int64_t seed = 1;
  } train;
  struct {
    std::string mode = "data_parallel";  // data_parallel | semi_auto_parallel | hybrid_parallel | stand_alone
    std::string transport = "auto";      // auto | shm | ucx | mpi
    int64_t device_num = -1;             // -1: as many ranks as are started
    bool gradients_mean = true, parameter_broadcast = false;
    bool gradient_fp32_sync = true, force_fp32_communication = false;
    bool loss_repeated_mean = true;  // changes nothing (see the guide)
    bool enable_alltoall = true;
    std::string machine, rates;  // files
    bool all_reduce_fusion = true;
    int64_t all_reduce_fusion_mb = 0;  // 0: chosen by a model
    std::vector<int64_t> all_reduce_fusion_config;
    std::string strategy, save_strategy;  // files
    bool only_trainable_params = false;   // of save_strategy
    std::string mesh;                     // and the rest: plan/parallel.h and train/job/strategies.h
    int64_t tp = 1, cp = 1, ep = 1;
    std::string cp_algorithm = "auto";  // auto | ulysses | ring | hybrid
    int64_t ulysses_degree = 0;         // of hybrid; 0: as many ranks as divide the heads
    bool sp = false, vocabulary = false;
    int64_t gradient_accumulation_steps = 1;
    bool gradient_accumulation_shard = true;
    std::string dataset = "data_parallel";
    std::vector<std::string> ops, parameters, layerwise;
    int64_t zero = 0;
    int64_t zero_threshold_kb = 64;
    int64_t zero_shard_size = -1;
    std::vector<std::string> zero_except;
  } parallel;
  std::string name = "run";
};

// One key of the file, and where its value goes.
struct ConfigKey {
  std::string name;  // "train.lr"
  std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*, std::vector<int64_t>*> target;
  std::string_view doc;
};
std::vector<ConfigKey> config_keys(JobConfig& config);

// Reads the file, then `overrides` of the form key=value. Unknown keys, values of another type and values out of range
// throw kInvalidArgument naming file, line, key and what would be right.
JobConfig read_config(const std::string& path, const std::vector<std::string>& overrides = {});
JobConfig parse_config(std::string_view text, const std::string& source,
                       const std::vector<std::string>& overrides = {});
// Replaces keys of a configuration that was made in a program, as parse_config does.
void override_keys(JobConfig& config, const std::vector<std::string>& overrides);
// What is asked of the ranks and has no effect, in words.
std::vector<std::string> remarks(const JobConfig& config);
std::string to_toml(JobConfig config);  // reads back to the same configuration

// The pieces a configuration describes.
std::unique_ptr<nn::Module> make_model(const JobConfig& config);
LossFn make_loss(const JobConfig& config);  // cross entropy, for all built-in models
data::Split make_data(const JobConfig& config);
Optimizer make_optimizer(const JobConfig& config);
bool predicts_classes(const JobConfig& config);  // images: one class a sample; gpt and llama: one token a position
TrainerOptions trainer_options(const JobConfig& config, int64_t ranks);
FitOptions fit_options(const JobConfig& config);
// What graphs and plans of the job are made from, without its data. The model outlives it.
Assembly assembly_of(const JobConfig& config, nn::Module& model, int64_t ranks);
std::vector<BatchField> batch_of(const JobConfig& config, int64_t batch);

}  // namespace trireme

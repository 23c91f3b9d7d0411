// What a key that is not one may have been meant to be.
#include <algorithm>
#include <array>

#include "trireme/base/error.h"
#include "trireme/train/job/config_impl.h"

namespace trireme {
namespace {

// Names that other systems have for keys, without their sections.
constexpr std::array<std::pair<std::string_view, std::string_view>, 126> kOtherNames{{
    {"learning_rate", "train.lr"},
    {"max_lr", "train.lr"},
    {"peak_lr", "train.lr"},
    {"batch_size", "train.batch"},
    {"global_batch_size", "train.batch"},
    {"max_steps", "train.steps"},
    {"num_steps", "train.steps"},
    {"train_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"num_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"warmup_steps", "train.warmup"},
    {"warmup_iters", "train.warmup"},
    {"lr_scheduler", "train.schedule"},
    {"lr_schedule", "train.schedule"},
    {"lr_scheduler_type", "train.schedule"},
    {"min_lr", "train.final_ratio"},
    {"grad_clip", "train.clip"},
    {"max_grad_norm", "train.clip"},
    {"gradient_clipping", "train.clip"},
    {"clip_norm", "train.clip"},
    {"precision", "train.dtype"},
    {"random_seed", "train.seed"},
    {"eval_interval", "train.eval_every"},
    {"eval_steps", "train.eval_every"},
    {"eval_iters", "train.eval_batches"},
    {"eval_batch_size", "train.eval_batch"},
    {"save_steps", "train.save_every"},
    {"save_interval", "train.save_every"},
    {"save_total_limit", "train.keep"},
    {"gradient_checkpointing", "train.recompute"},
    {"activation_checkpointing", "train.recompute"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"num_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"hidden_size", "model.width"},
    {"d_model", "model.width"},
    {"n_embd", "model.width"},
    {"n_head", "model.heads"},
    {"n_heads", "model.heads"},
    {"num_heads", "model.heads"},
    {"num_attention_heads", "model.heads"},
    {"n_kv_heads", "model.kv_heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"intermediate_size", "model.mlp_width"},
    {"vocab_size", "model.vocabulary"},
    {"num_experts", "model.experts"},
    {"num_classes", "model.classes"},
    {"tie_word_embeddings", "model.tied"},
    {"seq_len", "data.seq"},
    {"seq_length", "data.seq"},
    {"max_seq_len", "data.seq"},
    {"block_size", "data.seq"},
    {"context_length", "data.seq"},
    {"tensor_parallel", "parallel.tp"},
    {"tensor_model_parallel_size", "parallel.tp"},
    {"context_parallel_size", "parallel.cp"},
    {"zero_stage", "parallel.zero"},
    {"pipeline_stages", "parallel.pp"},
    {"pipeline_stage", "parallel.pp"},
    {"pipeline_parallel", "parallel.pp"},
    {"pipeline_model_parallel_size", "parallel.pp"},
    {"pipeline_scheduler", "parallel.schedule"},
    {"pipeline_schedule", "parallel.schedule"},
    {"pipeline_interleave", "parallel.virtual_stages"},
    {"pipeline_config", "parallel.schedule"},
    {"num_layers_per_virtual_pipeline_stage", "parallel.virtual_stages"},
    {"seq_split_num", "parallel.seq_chunks"},
    {"micro_size", "parallel.gradient_accumulation_steps"},
    {"interleave_num", "parallel.interleave"},
    {"select_recompute", "parallel.keep"},
    {"mp_comm_recompute", "parallel.recompute_communication"},
    {"select_comm_recompute", "parallel.recompute_communication"},
    {"parallel_optimizer_comm_recompute", "parallel.optimizer_comm_recompute"},
    {"recompute_num_layers", "train.recompute"},
    {"recompute_granularity", "train.recompute"},
    {"model_parallel", "parallel.tp"},
    {"context_parallel", "parallel.cp"},
    {"context_parallel_algo", "parallel.cp_algorithm"},
    {"ulysses_degree_in_cp", "parallel.ulysses_degree"},
    {"expert_parallel", "parallel.ep"},
    {"expert_model_parallel_size", "parallel.ep"},
    {"expert_num", "model.experts"},
    {"sequence_parallel", "parallel.sp"},
    {"use_seq_parallel", "parallel.sp"},
    {"micro_batch_num", "parallel.gradient_accumulation_steps"},
    {"num_micro_batches", "parallel.gradient_accumulation_steps"},
    {"micro_batches", "parallel.gradient_accumulation_steps"},
    {"grad_accumulation_step", "parallel.gradient_accumulation_steps"},
    {"micro_batch_interleave_num", "parallel.interleave"},
    {"enable_parallel_optimizer", "parallel.zero"},
    {"optimizer_level", "parallel.zero"},
    {"parallel_optimizer_threshold", "parallel.zero_threshold_kb"},
    {"optimizer_weight_shard_size", "parallel.zero_shard_size"},
    {"full_batch", "parallel.dataset"},
    {"search_mode", "parallel.search"},
    {"auto_parallel_search_mode", "parallel.search"},
    {"strategy_ckpt_load_file", "parallel.strategy"},
    {"strategy_ckpt_save_file", "parallel.save_strategy"},
    {"hidden_dropout", "model.dropout"},
    {"adam_beta1", "train.beta1"},
    {"adam_beta2", "train.beta2"},
    {"adam_eps", "train.eps"},
    {"num_query_groups", "model.kv_heads"},
    {"ffn_hidden_size", "model.mlp_width"},
    {"train_iters", "train.steps"},
    {"parallel_mode", "parallel.mode"},
    {"dataset_strategy", "parallel.dataset"},
    {"max_device_memory", "parallel.device_memory"},
    {"offload_cpu_size", "parallel.host_memory"},
    {"offload_disk_size", "parallel.disk"},
    {"offload_path", "parallel.disk"},
    {"offload_param", "parallel.offload_to"},
    {"hbm_ratio", "parallel.device_ratio"},
    {"cpu_ratio", "parallel.host_ratio"},
    {"aio_block_size", "parallel.disk_block"},
    {"aio_queue_size", "parallel.disk_queue"},
    {"default_prefetch", "parallel.prefetch"},
    {"backward_prefetch", "parallel.prefetch"},
    {"swap", "parallel.keep"},
    {"layer_swap", "parallel.keep"},
    {"op_swap", "parallel.keep"},
    {"offload_optimizer", "parallel.optimizer_on"},
    {"optimizer_cpu_offload", "parallel.optimizer_on"},
}};

// Names of settings that other systems have and this one does without, and why.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kWithoutNeed{{
    {"data_parallel", "data parallel ranks are those that tp, pp and the others leave"},
    {"dp", "data parallel ranks are those that tp, pp and the others leave"},
    {"global_rank", "the launcher gives each rank its number"},
    {"pipeline_result_broadcast", "all ranks of a pipeline have what a step reports"},
    {"memory_offload",
     "values leave the device's memory where parallel.home or parallel.keep says so, and where a step takes more than "
     "parallel.device_memory"},
    {"offload_config",
     "each of its keys is one of [parallel]: device_memory, host_memory, disk, offload_to and the others that `trireme "
     "help config` lists"},
    {"swap_config", "what it holds is said by keys of [parallel]: keep, by the part of the model, and prefetch"},
    {"host_mem_block_size",
     "the host's memory is no pool of blocks: the plan gives each buffer its place, to the byte, before the first "
     "step"},
    {"enable_pinned_mem",
     "the devices cpu and guarded work in the host's memory, or beside it, and for cuda its pages are locked wherever "
     "the system allows it"},
    {"enable_aio",
     "the disk is always read and written beside the computing, by io_uring or, where that is forbidden, by threads"},
}};

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);  // all of it where there is no point
}

}  // namespace

std::span<const std::pair<std::string_view, std::string_view>> other_names_of_keys() {
  return kOtherNames;
}

std::string_view why_no_key(const std::string& name) {
  for (const auto& [other, why] : kWithoutNeed) {
    if (other == last_part(name)) return why;
  }
  return "";
}

std::string meant_by(const std::string& name, const std::vector<ConfigKey>& keys) {
  const std::string_view last = last_part(name);
  for (const auto& [other, key] : kOtherNames) {
    if (other == last) return std::string(key);
  }
  std::vector<std::string> names, same;  // same: keys of that name in another section
  for (const ConfigKey& key : keys) {
    names.push_back(key.name);
    if (last_part(key.name) == last) same.push_back(key.name);
  }
  return same.size() == 1 ? same.front() : closest(name, names);
}

}  // namespace trireme

// The file of torchtitan's --job.config_file, but for what the plan does not say: model, data, optimizer.
#include <fmt/format.h>

#include "trireme/train/plan/exports/export_way.h"

namespace trireme {
namespace {

constexpr std::string_view kTorchtitan = "torchtitan";

void check_torchtitan_way(const ExportedWay& plan) {
  const Way& way = plan.way;
  require_sayable(way.tp == 1 || way.sp, kTorchtitan,
                  "its tensor parallelism always cuts the sequence, and the plan's "
                  "does not",
                  "plan with --only sp=true");
  require_sayable(way.zero != 1 || plan.copies == 1, kTorchtitan,
                  "it slices the optimizer's state only together with gradients, and the plan has --zero 1",
                  "plan with --only zero=2");
  const bool is_plain = way.tp == 1 && way.pp == 1;
  require_sayable(way.zero >= 2 || plan.copies == 1 || is_plain, kTorchtitan,
                  "it keeps whole copies of a model (DDP) only without tensor and pipeline parallelism",
                  "plan with --only zero=2");
  require_sayable(way.zero >= 2 || (way.cp == 1 && way.ep == 1), kTorchtitan,
                  "it always slices parameters over the ranks of context and expert parallelism, and the plan does not",
                  "plan with --only zero=2 or zero=3");
  require_sayable(way.pp == 1 || way.schedule == WaySchedule::k1F1B, kTorchtitan,
                  fmt::format("it has no schedule '{}'", to_string(way.schedule)), "plan with --only schedule=1f1b");
  require_sayable(way.cp == 1 || plan.heads_of_cp == 1, kTorchtitan,
                  "its context parallelism passes keys and values around, and in the plan's ranks share the heads",
                  "plan with --set parallel.cp_algorithm=ring, or with --only cp=1");
  require_sayable(
      way.ep % way.cp == 0 || way.ep == 1, kTorchtitan,
      fmt::format("the ranks of --cp {} are among those that share experts, and --ep is {}", way.cp, way.ep),
      "plan with --only cp=1 or ep=1");
  const auto layers = plan.sizes.find("layers");
  require_sayable(layers == plan.sizes.end() || static_cast<int64_t>(layers->second) % way.pp == 0, kTorchtitan,
                  fmt::format("the layers do not divide over {} stages", way.pp), "plan with another --only pp=N");
  require_sayable(!plan.has_unlike_stages, kTorchtitan, "the plan's stages have different numbers of layers",
                  "plan with --search compiled, or with another --only pp=N");
  require_sayable(
      way.recompute == WayRecompute::kNone || way.recompute == WayRecompute::kFull, kTorchtitan,
      "its selective recomputation chooses different ops from the plan's, which is for activation functions and norms",
      "plan with --only recompute=none or recompute=full");
}

}  // namespace

std::string torchtitan_toml(const ExportedWay& plan) {
  check_torchtitan_way(plan);
  const Way& way = plan.way;
  std::string out =
      fmt::format("# For {} ranks. [model] names a model and a flavor of torchtitan: take those of\n#", plan.ranks);
  for (const auto& [name, value] : plan.sizes) out += fmt::format(" {}={}", name, value);
  const bool is_pipeline = way.pp > 1;
  const double clip = plan.job.train.step.clip_norm;
  out += fmt::format(
      "\n[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\nmax_norm = {}\n"
      "mixed_precision_param = \"{}\"\n",
      plan.micro_batch * (is_pipeline ? way.micro_batches : 1), plan.job.train.fit.batch, plan.positions,
      clip > 0 ? fmt::format("{:.6}", clip) : "inf",
      plan.job.train.step.compute == DType::kBF16 ? "bfloat16" : "float32");
  const bool slices = way.zero >= 2;
  out += fmt::format(
      "\n[parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {}\n"
      "fsdp_reshard_after_forward = \"{}\"\ntensor_parallel_degree = {}\npipeline_parallel_degree = {}\n",
      slices ? 1 : plan.copies, slices ? plan.copies : 1, way.zero == 2 ? "never" : "always", way.tp, way.pp);
  if (is_pipeline)
    out += fmt::format(
        "pipeline_parallel_schedule = \"1F1B\"\npipeline_parallel_microbatch_size = {}\n"
        "pipeline_parallel_first_stage_less_layers = 0\npipeline_parallel_last_stage_less_layers = 0\n",
        plan.micro_batch);
  out += fmt::format("context_parallel_degree = {}\n", way.cp);
  if (way.cp > 1) out += "context_parallel_rotate_method = \"alltoall\"\n";
  out += fmt::format("expert_parallel_degree = {}\n", way.ep);
  if (way.ep > 1) out += fmt::format("expert_tensor_parallel_degree = {}\n", way.tp);
  return out + fmt::format("\n[activation_checkpoint]\nmode = \"{}\"\n", to_string(way.recompute));
}

}  // namespace trireme

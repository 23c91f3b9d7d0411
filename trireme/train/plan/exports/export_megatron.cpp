// Flags of Megatron-LM's pretrain_gpt.py.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "trireme/base/error.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/exports/export_way.h"

namespace trireme {
namespace {

constexpr std::string_view kMegatron = "megatron";

int64_t size_of(const ExportedWay& plan, const std::string& name) {
  const auto found = plan.sizes.find(name);
  return found == plan.sizes.end() ? 0 : static_cast<int64_t>(found->second);
}

void check_megatron_way(const ExportedWay& plan) {
  const Way& way = plan.way;
  require_sayable(way.zero <= 1, kMegatron,
                  fmt::format("its distributed optimizer slices the state alone, and the plan has --zero {}", way.zero),
                  "plan with --only zero=1");
  require_sayable(way.pp == 1 || way.schedule == WaySchedule::k1F1B || way.schedule == WaySchedule::kInterleaved,
                  kMegatron, fmt::format("it has no schedule '{}'", to_string(way.schedule)),
                  "plan with --only schedule=1f1b");
  require_sayable(way.recompute == WayRecompute::kNone || way.recompute == WayRecompute::kFull, kMegatron,
                  "its selective recomputation is for attention, and the plan's for activation functions and norms",
                  "plan with --only recompute=none or recompute=full");
  require_sayable(!way.kept_slices || (way.recompute == WayRecompute::kFull && !way.sp), kMegatron,
                  "it keeps only the inputs of recomputed layers in slices, and only without --sequence-parallel; the "
                  "plan keeps more",
                  "plan with --only kept_slices=false");
  const int64_t stages = way.pp * way.virtual_stages;
  require_sayable(size_of(plan, "layers") % stages == 0, kMegatron,
                  fmt::format("{} layers do not divide over {} stages", size_of(plan, "layers"), stages),
                  "plan with another --only pp=N");
  require_sayable(!plan.has_unlike_stages, kMegatron, "the plan's stages have different numbers of layers",
                  "plan with --search compiled, or with another --only pp=N");
  require_sayable(size_of(plan, "experts") == 0 || way.tp == 1 || way.sp, kMegatron,
                  "a mixture of experts with --tp needs --sp as well", "plan with --only tp=1 or sp=true");
}

// A decoder that it has flags for, of which every size is known here.
void check_megatron_model(const ExportedWay& plan) {
  static const std::set<std::string> kKnown = {"layers",     "width", "heads",   "vocabulary", "kv_heads", "mlp_width",
                                               "rope_theta", "tied",  "dropout", "experts",    "top_k"};
  static const std::set<std::string> kOfMixtures = {"capacity_factor", "aux_loss_factor", "expert_groups"};
  require_sayable(model_of(plan.job).decoder() != nn::Decoder::kOther, kMegatron,
                  fmt::format("pretrain_gpt.py trains decoders as GPT-2 and Llama are, and not model.kind = '{}'",
                              plan.job.model.kind),
                  "there are no flags for it");
  for (const auto& [name, value] : plan.sizes) {
    const bool is_known = kKnown.contains(name) || kOfMixtures.contains(name);
    require_sayable(is_known, kMegatron, fmt::format("it has no flag for model.{}", name), "there are none for it");
  }
  require_sayable(size_of(plan, "expert_groups") <= 1, kMegatron, "it has no flag for model.expert_groups",
                  "set it to 1");
}

std::string megatron_model(const ExportedWay& plan) {
  const auto size = [&](const char* name) { return size_of(plan, name); };
  std::string out = fmt::format("--num-layers {}\n--hidden-size {}\n--num-attention-heads {}\n", size("layers"),
                                size("width"), size("heads"));
  const bool is_rotary = model_of(plan.job).decoder() == nn::Decoder::kLlama;
  if (is_rotary) {
    const int64_t given = size("mlp_width");
    const int64_t hidden = given > 0 ? given : (8 * size("width") + 191) / 192 * 64;  // as nn/models/llama.cpp
    out += fmt::format(
        "--ffn-hidden-size {}\n--swiglu\n--disable-bias-linear\n--normalization RMSNorm\n"
        "--position-embedding-type rope\n--rotary-base {}\n",
        hidden, size("rope_theta"));
  } else {
    out += "--normalization LayerNorm\n--position-embedding-type learned_absolute\n";
  }
  if (size("kv_heads") > 0 && size("kv_heads") != size("heads"))
    out += fmt::format("--group-query-attention\n--num-query-groups {}\n", size("kv_heads"));
  if (is_rotary && size("tied") == 0) out += "--untie-embeddings-and-output-weights\n";
  const auto dropout = plan.sizes.find("dropout");
  const double rate = dropout == plan.sizes.end() ? 0 : dropout->second;
  out += fmt::format("--attention-dropout {}\n--hidden-dropout {}\n", rate, rate);
  if (size("experts") > 0) {
    out += fmt::format("--num-experts {}\n--moe-router-topk {}\n", size("experts"), size("top_k"));
    if (size("top_k") == 1) out += "--moe-router-pre-softmax\n";  // the gate is the expert's share among all
    if (const double capacity = plan.sizes.at("capacity_factor"); std::isfinite(capacity)) {
      // First come, first served; only this dispatcher knows a capacity.
      out += fmt::format(
          "--moe-token-dispatcher-type alltoall\n--moe-expert-capacity-factor {}\n--moe-token-drop-policy position\n",
          capacity);
    }
    out += fmt::format("--moe-aux-loss-coeff {}\n", plan.sizes.at("aux_loss_factor"));
  }
  return out + fmt::format("--vocab-size {}\n--seq-length {}\n--max-position-embeddings {}\n", size("vocabulary"),
                           plan.positions, plan.positions);
}

// By what attention goes over ranks that have parts of the positions.
std::string megatron_context(const ExportedWay& plan) {
  const int64_t cp = plan.way.cp, heads = plan.heads_of_cp;
  if (cp == 1) return "";
  if (heads == 1) return "--cp-comm-type p2p\n";
  if (heads == cp) return "--cp-comm-type a2a\n";
  return fmt::format("--cp-comm-type a2a+p2p\n--hierarchical-context-parallel-sizes {} {}\n", heads, cp / heads);
}

}  // namespace

std::string megatron_flags(const ExportedWay& plan) {
  check_megatron_way(plan);
  check_megatron_model(plan);
  const Way& way = plan.way;
  std::string out = megatron_model(plan);
  out += fmt::format("--tensor-model-parallel-size {}\n--pipeline-model-parallel-size {}\n--context-parallel-size {}\n",
                     way.tp, way.pp, way.cp);
  out += megatron_context(plan);
  if (way.virtual_stages > 1)
    out += fmt::format("--num-layers-per-virtual-pipeline-stage {}\n",
                       size_of(plan, "layers") / (way.pp * way.virtual_stages));
  if (way.sp) out += "--sequence-parallel\n";
  if (size_of(plan, "experts") > 0) out += fmt::format("--expert-model-parallel-size {}\n", way.ep);
  if (way.zero == 1) out += "--use-distributed-optimizer\n";
  if (way.recompute == WayRecompute::kFull)
    out += "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n";
  if (way.kept_slices) out += "--distribute-saved-activations\n";
  out += fmt::format("--micro-batch-size {}\n--global-batch-size {}\n", plan.micro_batch, plan.job.train.fit.batch);
  if (plan.job.train.step.compute == DType::kBF16) out += "--bf16\n";
  return out + fmt::format("--clip-grad {}\n", plan.job.train.step.clip_norm);
}

}  // namespace trireme

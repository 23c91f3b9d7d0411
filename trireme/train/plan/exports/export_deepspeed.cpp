// DeepSpeed's configuration, which says ZeRO and micro-batches; the rest of a plan would stand in the program.
#include <fmt/format.h>

#include "trireme/train/plan/exports/export_way.h"

namespace trireme {

std::string deepspeed_json(const ExportedWay& plan) {
  const Way& way = plan.way;
  const std::pair<const char*, int64_t> in_programs[] = {
      {"pp", way.pp}, {"tp", way.tp}, {"cp", way.cp}, {"ep", way.ep}};
  for (const auto& [name, value] : in_programs)
    require_sayable(value == 1, "deepspeed", fmt::format("--{} {} is set in its program, not in its file", name, value),
                    fmt::format("plan with --only {}=1", name));
  require_sayable(way.recompute == WayRecompute::kNone, "deepspeed",
                  "recomputation is set in its program, not in its file", "plan with --only recompute=none");
  // What it calls so has the state on the CPU, and updates it there.
  const bool is_offloaded = way.place != UpdatePlace();
  require_sayable(!is_offloaded || (way.place == UpdatePlace{Tier::kHost, Tier::kHost} && way.zero > 0), "deepspeed",
                  "it moves state off the device only with ZeRO and with updates there, and for a disk needs a path "
                  "that plans do not have",
                  "plan with --only state=device, or with \"update=host state=host zero=1\"");
  return fmt::format(
      "{{\n  \"train_batch_size\": {},\n  \"train_micro_batch_size_per_gpu\": {},\n"
      "  \"gradient_accumulation_steps\": {},\n  \"gradient_clipping\": {},\n"
      "  \"bf16\": {{ \"enabled\": {} }},\n  \"zero_optimization\": {{ \"stage\": {}{} }}\n}}\n",
      plan.job.train.fit.batch, plan.micro_batch, way.micro_batches, plan.job.train.step.clip_norm,
      plan.job.train.step.compute == DType::kBF16, way.zero,
      is_offloaded ? ", \"offload_optimizer\": { \"device\": \"cpu\" }" : "");
}

}  // namespace trireme

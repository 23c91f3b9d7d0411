#include "trireme/train/plan/exports/export_way.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme {

// Each stands in the file of its system.
std::string megatron_flags(const ExportedWay& plan);
std::string torchtitan_toml(const ExportedWay& plan);
std::string deepspeed_json(const ExportedWay& plan);

namespace {

constexpr ExportSystem kExportSystems[] = {{.name = "megatron", .write = megatron_flags, .has_kept_slices = true},
                                           {.name = "torchtitan", .write = torchtitan_toml},
                                           {.name = "deepspeed", .write = deepspeed_json, .has_offload = true}};

std::map<std::string, double> sizes_of(const JobConfig& job) {
  JobConfig copy = job;
  std::map<std::string, double> out;
  for (const Key& key : copy.model.spec->keys()) {
    const std::string name(key.name);
    if (const auto* whole = std::get_if<int64_t*>(&key.target)) out[name] = static_cast<double>(**whole);
    if (const auto* number = std::get_if<double*>(&key.target)) out[name] = **number;
    if (const auto* is_on = std::get_if<bool*>(&key.target)) out[name] = **is_on ? 1 : 0;
  }
  return out;
}

}  // namespace

std::span<const ExportSystem> export_systems() {
  return kExportSystems;
}

void require_sayable(bool can, std::string_view system, std::string_view what, std::string_view cure) {
  if (!can) fail(ErrorKind::kUnsupported, "export to {}: {}; {}", system, what, cure);
}

std::string export_way(std::string_view system, const JobConfig& job, const Way& way, int64_t ranks,
                       const std::vector<int64_t>& layers_of_stages) {
  const auto found = std::ranges::find(kExportSystems, system, &ExportSystem::name);
  std::vector<std::string_view> names;
  for (const ExportSystem& each : kExportSystems) names.push_back(each.name);
  require(found != std::end(kExportSystems), "export: there is no system '{}'; there are {}", system,
          joined_text(names, ", "));
  require_sayable(!way.is_searched, system, "the plan cuts each op by itself (--auto), for which there are no flags",
                  "plan without it by --only auto=false");
  require_sayable(job.parallel.homes.empty(), system, "parallel.home says what lies on the host or disk",
                  "leave it out");
  require_sayable(way.place == UpdatePlace() || found->has_offload, system,
                  fmt::format("the plan has the optimizer's state on the {}", to_string(way.place.state)),
                  "plan with --only state=device");
  const int64_t slices = job.parallel.zero.shard_size;
  require_sayable(way.zero == 0 || slices == -1, system,
                  fmt::format("parallel.zero_shard_size = {} has groups of ranks slice copies of their own", slices),
                  "leave it out");
  require_sayable(way.keep == Tier::kDevice, system,
                  fmt::format("the plan keeps activations on the {}", to_string(way.keep)),
                  "plan with --only keep=device");
  require_sayable(!way.kept_slices || found->has_kept_slices, system, "the plan keeps activations in slices",
                  "plan with --only kept_slices=false");
  ExportedWay plan{.job = job, .way = way, .ranks = ranks, .sizes = sizes_of(job)};
  plan.has_unlike_stages =
      std::ranges::adjacent_find(layers_of_stages, std::ranges::not_equal_to()) != layers_of_stages.end();
  plan.copies = ranks / (way.pp * way.tp * way.cp);
  plan.micro_batch = job.train.fit.batch / (plan.copies * way.micro_batches);
  JobConfig cut = job;
  cut.parallel.tp = way.tp;
  cut.parallel.cp = way.cp;
  plan.heads_of_cp = ranks_of_heads(cut);
  plan.positions = predicts_classes(job) ? 1 : fields_of(job)[0].sample.elements();
  require(plan.micro_batch * plan.copies * way.micro_batches == job.train.fit.batch,
          "export: a batch of {} does not divide over {} of the model and {}", counted(job.train.fit.batch, "sample"),
          plan.copies == 1 ? "1 copy" : fmt::format("{} copies", plan.copies),
          counted(way.micro_batches, "micro-batch"));
  return found->write(plan);
}

}  // namespace trireme

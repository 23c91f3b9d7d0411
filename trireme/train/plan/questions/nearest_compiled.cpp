#include "trireme/train/plan/questions/nearest_compiled.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"

namespace trireme {
namespace {

// What a rank of so many has, and what it needs in any case.
struct Room {
  int64_t memory_bytes = 0;
  BesideBytes beside;
  KeptBytes kept;  // of the whole model; none where what lies elsewhere is chosen under a budget
};

Room room_of(const PlanRequest& request) {
  const JobConfig job = without_cuts(request.job);
  const auto model = make_model(job);
  const Assembly assembly = assembly_of(job, *model, 1);
  const bool is_budgeted = assembly.options.parallel.tiers.device.is_given();
  return {memory_of_rank(request, assembly), bytes_beside(request, assembly),
          is_budgeted ? KeptBytes() : kept_by(graphs_of(assembly, 1).step)};
}

// The first of these ways that is compiled and fits.
std::optional<NearestCompiled::Change> first_that_fits(const PlanRequest& request, int64_t to,
                                                       const std::vector<Way>& ways) {
  const Room room = room_of(request);
  for (const Way& way : ways) {
    if (least_bytes(way, request.ranks, room.kept) > room.memory_bytes) continue;
    const std::optional<WayCost> cost = cost_of_way(request, way);
    if (cost && bytes_beyond(way, *cost, room.memory_bytes, room.beside) == 0)
      return NearestCompiled::Change{.to = to, .way = way, .bytes = cost->most_bytes()};
  }
  return std::nullopt;
}

// Like it, with fewer micro-batches where the batch has become too small for as many.
std::vector<Way> with_fewer_micro_batches(const Way& smallest) {
  std::vector<Way> out{smallest};
  for (Way way = smallest; way.micro_batches % 2 == 0 && way.micro_batches / 2 >= way.pp;) {
    way.micro_batches /= 2;
    out.push_back(way);
  }
  return out;
}

// Like it, with the more ranks on one axis or the other.
std::vector<Way> with_more_ranks(const Way& smallest, int64_t times) {
  if (smallest.is_searched) return {smallest};
  Way data = smallest, tensor = smallest, pipeline = smallest;
  data.zero = 3;
  tensor.tp *= times;
  pipeline.pp *= times;
  pipeline.micro_batches = std::max(pipeline.micro_batches, pipeline.pp);
  return {smallest, data, tensor, pipeline};
}

constexpr int64_t kMib = 1 << 20;

std::string change_text(std::string_view name, const NearestCompiled::Change& change) {
  return fmt::format("    {:<16} {}, by {} ({:.1f} MiB a rank)\n", name, change.to, change.way.text(),
                     static_cast<double>(change.bytes) / static_cast<double>(kMib));
}

}  // namespace

std::optional<NearestCompiled> nearest_compiled(const PlanRequest& request, const JobPlan& plan) {
  if (!plan.smallest) return std::nullopt;
  const auto& [smallest, cost] = *plan.smallest;
  NearestCompiled out{.is_budgeted = request.job.parallel.tiers.device.is_given(), .most_ranks = request.ranks};
  if (bytes_beyond(smallest, cost, cost.most_bytes(), plan.beside) == 0) out.memory_bytes = cost.most_bytes();
  PlanRequest other = request;
  const int64_t batch = request.job.train.fit.batch;
  for (int64_t less = batch; less % 2 == 0 && !out.batch;) {
    less /= 2;
    other.job.train.fit.batch = less;
    out.batch = first_that_fits(other, less, with_fewer_micro_batches(smallest));
  }
  other.job.train.fit.batch = batch;
  const int64_t devices = request.job.parallel.machine.empty() ? 0 : plan.machine.devices();
  for (int doubling = 1; doubling <= kMostCompiledDoublings && !out.ranks; ++doubling) {
    const int64_t times = int64_t{1} << doubling;
    if (devices > 0 && request.ranks * times > devices) break;
    other.ranks = out.most_ranks = request.ranks * times;
    out.ranks = first_that_fits(other, other.ranks, with_more_ranks(smallest, times));
  }
  return out;
}

std::string nearest_text(const NearestCompiled& nearest) {
  if (nearest.memory_bytes == 0 && !nearest.ranks && !nearest.batch)
    return fmt::format("  ways like it do not fit with half the batch and so on, nor with up to {} ranks\n",
                       nearest.most_ranks);
  std::string out = "  with one of these changes a way was compiled that fits:\n";
  if (nearest.memory_bytes > 0)
    out += fmt::format("    {:<16} {} MiB a rank ({}{}MiB)\n", "more memory", (nearest.memory_bytes + kMib - 1) / kMib,
                       nearest.is_budgeted ? "--set parallel.device_memory=" : "--memory ",
                       (nearest.memory_bytes + kMib - 1) / kMib);
  if (nearest.ranks) out += change_text("more ranks", *nearest.ranks);
  if (nearest.batch) out += change_text("a smaller batch", *nearest.batch);
  return out;
}

}  // namespace trireme

#include "trireme/train/plan/exact/nearest_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trireme/base/bytes_text.h"

namespace trireme {
namespace {

// Searches that compile so many jobs together.
class Searches {
 public:
  Searches(WayTables& tables, int64_t most_jobs, const WayTables::OnProgress& tell)
      : tables_(tables),
        last_job_(most_jobs > 0 ? tables.pricer().jobs_compiled() + most_jobs : std::numeric_limits<int64_t>::max()),
        tell_(tell) {}

  WayTables::Fewest fewest_bytes(const OuterWays& ways, int64_t ranks, int64_t limit) {
    return tables_.fewest_bytes(ways, ranks, limit, tell_, last_job_);
  }

  std::optional<NearestFit::Change> change_to(int64_t to, const OuterWays& ways, int64_t ranks, int64_t memory,
                                              bool& is_known) {
    const WayTables::Fewest found = fewest_bytes(ways, ranks, memory);
    is_known = !found.is_stopped;
    if (!found.way) return std::nullopt;
    return NearestFit::Change{.to = to, .way = ways.at(*found.way), .bytes = found.bytes};
  }

 private:
  WayTables& tables_;
  const int64_t last_job_;
  const WayTables::OnProgress& tell_;
};

std::string change_line(std::string_view name, const NearestFit::Change& change) {
  return fmt::format("  {:<18} {}, by {} ({} a rank)\n", name, change.to, change.way.way().text(),
                     bytes_text(static_cast<double>(change.bytes)));
}

}  // namespace

std::optional<NearestFit> nearest_fit(WayTables& tables, const ExactSetting& setting, const OuterWays& ways,
                                      int64_t ranks, const WayTables::OnProgress& tell, int64_t most_jobs) {
  Searches searches(tables, most_jobs, tell);
  const WayTables::Fewest fewest = searches.fewest_bytes(ways, ranks, std::numeric_limits<int64_t>::max());
  if (fewest.is_stopped) return NearestFit{.knows_ranks = false, .knows_batch = false};
  if (!fewest.way) return std::nullopt;
  NearestFit out{.way = ways.at(*fewest.way),
                 .bytes = fewest.bytes,
                 .has_tiers = !setting.keeps().empty(),
                 .is_joined = setting.figures.is_joined};
  StageProblem problem = *tables.problem_of(out.way);
  problem.memory = out.bytes;
  out.begins = *best_cut(problem);
  const std::vector<int64_t> crews = bytes_of_crews(problem, out.begins);
  const auto fullest = std::ranges::max_element(crews) - crews.begin();
  out.kinds = kinds_of_crews(problem, out.begins)[static_cast<size_t>(fullest)];
  const int64_t batch = setting.job.train.fit.batch;
  out.most_ranks = ranks;
  for (int doubling = 0; doubling < kMostRankDoublings && !out.ranks && out.knows_ranks; ++doubling) {
    const int64_t more = 2 * out.most_ranks;
    if (setting.most_ranks > 0 && more > setting.most_ranks) break;
    out.ranks = searches.change_to(more, setting.ways(more, batch), more, setting.memory_bytes, out.knows_ranks);
    out.most_ranks = more;
  }
  out.knows_batch = out.knows_ranks;
  for (int64_t less = batch; less % 2 == 0 && !out.batch && out.knows_batch;) {
    less /= 2;
    out.batch = searches.change_to(less, setting.ways(ranks, less), ranks, setting.memory_bytes, out.knows_batch);
  }
  return out;
}

std::string nearest_fit_text(const NearestFit& fit, int64_t memory_bytes) {
  if (fit.bytes == 0)
    return "what would fit was not found before the search was stopped; give it more with --most-jobs\n";
  const auto bytes = [](int64_t of) { return bytes_text(static_cast<double>(of)); };
  std::string out = fmt::format("the smallest, {}, takes {} on the fullest rank, {} too much:\n", fit.way.way().text(),
                                bytes(fit.bytes), bytes(fit.bytes - memory_bytes));
  for (const auto& [name, of] : fit.kinds)
    out += fmt::format("  {:>5.1f} %  {}\n", 100 * static_cast<double>(of) / static_cast<double>(fit.bytes), name);
  if (fit.is_joined) out += "of the ways with equal cuts only those were looked at that recompute and slice the most\n";
  out += fmt::format(
      "all recomputation, and parameters, gradients, state and what is kept in slices, {}are among the ways. It would "
      "fit "
      "with\n",
      fit.has_tiers ? "and state and activations on the host or the disk, " : "");
  constexpr int64_t kMib = 1 << 20;
  out += fmt::format("  {:<18} {} MiB a rank (--memory {}MiB)\n", "more memory", (fit.bytes + kMib - 1) / kMib,
                     (fit.bytes + kMib - 1) / kMib);
  const std::string_view stopped = "the search was stopped (--most-jobs)";
  out += fit.ranks         ? change_line("more ranks", *fit.ranks)
         : fit.knows_ranks ? fmt::format("  not with more ranks, up to {}\n", fit.most_ranks)
                           : fmt::format("  perhaps with more ranks: {}\n", stopped);
  out += fit.batch         ? change_line("a smaller batch", *fit.batch)
         : fit.knows_batch ? "  not with half the batch, a quarter and so on\n"
                           : fmt::format("  perhaps with a smaller batch: {}\n", stopped);
  return out;
}

}  // namespace trireme

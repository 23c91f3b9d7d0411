#include "cli/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/op/row_steps.h"
#include "trireme/op/structural.h"

namespace trireme::cli {
namespace {

std::string text_of(const std::vector<TensorType>& types) {
  std::string out;
  for (const TensorType& type : types) out += fmt::format("{}{}", out.empty() ? "" : ", ", to_string(type));
  return out;
}

// What it works on; of fused steps also which they are.
std::string operands_of(const trireme::Action& action, const std::vector<TensorType>& in,
                        const std::vector<TensorType>& out) {
  std::string text;
  if (action.op == &structural().fused_rows) {
    for (const RowStep& step : parse_row_steps(action.attrs.as<FusedRowsAttrs>()).steps)
      text += fmt::format("{}{}", text.empty() ? "" : " ", step.op->name);
    text += ": ";
  }
  return fmt::format("{}{} -> {}", text, text_of(in), text_of(out));
}

double per_second(double count, double seconds) {
  return seconds > 0 ? count / seconds / 1e9 : 0;
}

}  // namespace

StepProfile::StepProfile(Executor& executor) : executor_(executor) {
  executor_.set_timing(true, true);
}

void StepProfile::add_step() {
  const std::vector<ActionTime> times = executor_.times();
  if (least_s_.empty()) least_s_.assign(times.size(), 1e30);
  for (size_t i = 0; i < times.size(); ++i) least_s_[i] = std::min(least_s_[i], times[i].seconds);
  executor_.set_timing(true, true);  // from zero
}

std::vector<ProfileRow> StepProfile::rows() const {
  const ExecutionPlan& plan = executor_.plan();
  invariant(least_s_.size() == plan.actions.size(), "a profile of {} actions has times of {}", plan.actions.size(),
            least_s_.size());
  const auto types_of = [&](const auto& values) {
    std::vector<TensorType> types;
    for (const int id : values) types.push_back(plan.values[static_cast<size_t>(id)].type);
    return types;
  };
  std::map<std::pair<std::string, std::string>, ProfileRow> works;
  double all = 0;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const trireme::Action& action = plan.actions[i];
    if (action.lane != Lane::kCompute || action.kernel.empty() || action.op->traits.zero_cost_view) continue;
    const std::vector<TensorType> in = types_of(action.in);
    const std::vector<TensorType> out = types_of(action.out);
    ProfileRow& work = works[{std::string(action.kernel), operands_of(action, in, out)}];
    const Cost cost = action.op->cost ? action.op->cost.get()({in, out, action.attrs}) : Cost{};
    ++work.calls;
    work.seconds += least_s_[i];
    work.flops += cost.flops;
    work.bytes += cost.bytes;
    all += least_s_[i];
  }
  std::vector<ProfileRow> rows;
  for (auto& [what, work] : works) {
    work.kernel = what.first;
    work.operands = what.second;
    work.share = all > 0 ? work.seconds / all : 0;
    rows.push_back(std::move(work));
  }
  std::ranges::stable_sort(rows, std::ranges::greater(), &ProfileRow::seconds);
  return rows;
}

JsonText profile_json(const std::vector<ProfileRow>& rows) {
  std::vector<JsonText> out;
  for (const ProfileRow& row : rows) {
    out.emplace_back(JsonObject{{"kernel", row.kernel},
                                {"operands", row.operands},
                                {"calls", row.calls},
                                {"ms", row.seconds * 1e3},
                                {"share", row.share},
                                {"flops", row.flops},
                                {"bytes", row.bytes},
                                {"gflops_per_s", per_second(row.flops, row.seconds)},
                                {"gb_per_s", per_second(row.bytes, row.seconds)}});
  }
  return out;
}

std::string profile_text(const std::vector<ProfileRow>& rows) {
  std::string out = "   share         ms   calls    GFLOP/s   GB/s  kernel\n";
  double seconds = 0, bytes = 0;
  for (const ProfileRow& row : rows) {
    out +=
        fmt::format("{:6.1f} % {:10.3f} {:7} {:10.1f} {:6.1f}  {} {}\n", 100 * row.share, row.seconds * 1e3, row.calls,
                    per_second(row.flops, row.seconds), per_second(row.bytes, row.seconds), row.kernel, row.operands);
    seconds += row.seconds;
    bytes += row.bytes;
  }
  return out + fmt::format("all: {:.3f} ms, {:.1f} MB\n", seconds * 1e3, bytes / 1e6);
}

}  // namespace trireme::cli

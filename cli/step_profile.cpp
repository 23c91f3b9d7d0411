#include "cli/step_profile.h"

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/op/row_steps.h"
#include "trireme/op/structural.h"

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Work {
  int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
};

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

Json row_of(const Work& work, double all_seconds) {
  return {{"calls", work.calls},
          {"ms", work.seconds * 1e3},
          {"share", all_seconds > 0 ? work.seconds / all_seconds : 0},
          {"flops", work.flops},
          {"bytes", work.bytes},
          {"gflops_per_s", per_second(work.flops, work.seconds)},
          {"gb_per_s", per_second(work.bytes, work.seconds)}};
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

Json StepProfile::rows() const {
  const ExecutionPlan& plan = executor_.plan();
  invariant(least_s_.size() == plan.actions.size(), "a profile of {} actions has times of {}", plan.actions.size(),
            least_s_.size());
  const auto types_of = [&](const auto& values) {
    std::vector<TensorType> types;
    for (const int id : values) types.push_back(plan.values[static_cast<size_t>(id)].type);
    return types;
  };
  std::map<std::pair<std::string, std::string>, Work> works;
  double all = 0;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const trireme::Action& action = plan.actions[i];
    if (action.lane != Lane::kCompute || action.kernel.empty() || action.op->traits.zero_cost_view) continue;
    const std::vector<TensorType> in = types_of(action.in);
    const std::vector<TensorType> out = types_of(action.out);
    Work& work = works[{std::string(action.kernel), operands_of(action, in, out)}];
    const Cost cost = action.op->cost ? action.op->cost.get()({in, out, action.attrs}) : Cost{};
    ++work.calls;
    work.seconds += least_s_[i];
    work.flops += cost.flops;
    work.bytes += cost.bytes;
    all += least_s_[i];
  }
  Json rows = Json::array();
  for (const auto& [what, work] : works) {
    Json row{{"kernel", what.first}, {"operands", what.second}};
    row.update(row_of(work, all));
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) { return a["ms"] > b["ms"]; });
  return rows;
}

std::string profile_text(const Json& rows) {
  std::string out = "   share         ms   calls    GFLOP/s   GB/s  kernel\n";
  double ms = 0, bytes = 0;
  for (const Json& row : rows) {
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    out += fmt::format("{:6.1f} % {:10.3f} {:7} {:10.1f} {:6.1f}  {} {}\n", 100 * number("share"), number("ms"),
                       row["calls"].get<int64_t>(), number("gflops_per_s"), number("gb_per_s"),
                       row["kernel"].get<std::string>(), row["operands"].get<std::string>());
    ms += number("ms");
    bytes += number("bytes");
  }
  return out + fmt::format("all: {:.3f} ms, {:.1f} MB\n", ms, bytes / 1e6);
}

}  // namespace trireme::cli

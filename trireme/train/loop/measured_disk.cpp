#include "trireme/train/loop/measured_disk.h"

#include <algorithm>

#include "trireme/base/clock.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

constexpr int64_t kEnoughBytes = 4 << 20;

// Of the plan's inputs; nullptr: none lies there.
const PlanInput* value_to_measure_by(const ExecutionPlan& plan) {
  const auto bytes = [&](const PlanInput& input) { return plan.values[static_cast<size_t>(input.value)].type.bytes(); };
  const PlanInput* best = nullptr;
  for (const PlanInput& input : plan.inputs) {
    const int buffer = plan.values[static_cast<size_t>(input.value)].buffer;
    if (plan.buffers[static_cast<size_t>(buffer)].tier != Tier::kDisk) continue;
    const bool is_better =
        best == nullptr || (bytes(*best) < kEnoughBytes ? bytes(input) > bytes(*best)
                                                        : bytes(input) >= kEnoughBytes && bytes(input) < bytes(*best));
    if (is_better) best = &input;
  }
  return best;
}

}  // namespace

std::optional<double> measured_disk(Session& session) {
  const PlanInput* const input = value_to_measure_by(session.plan());
  if (input == nullptr || session.compiled().rates.machine) return {};
  Executor& step = session.step();
  HostPiece piece = step.borrow_input(input->name);  // its memory is there from now on
  double begin_s = now_s();
  piece = step.borrow_input(input->name);
  const double read_s = now_s() - begin_s;
  begin_s = now_s();
  step.write_input(input->name, piece.view);
  const double written_s = now_s() - begin_s;
  const auto bytes = static_cast<double>(piece.view.bytes());
  TRIREME_LOG(kInfo, "train", "the tier 'disk' is read at {:.3g} GB/s and written at {:.3g} GB/s, measured by {} bytes",
              bytes / read_s / 1e9, bytes / written_s / 1e9, piece.view.bytes());
  return bytes / std::max(read_s, written_s);
}

}  // namespace trireme

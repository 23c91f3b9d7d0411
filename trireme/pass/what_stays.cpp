#include "trireme/pass/what_stays_impl.h"

#include <algorithm>

#include "trireme/pass/pass_remark.h"
#include "trireme/pass/recompute_rules.h"

namespace trireme {

void say_what_stays(const Graph& graph, const PassOptions& options, std::span<const Trip> trips) {
  if (options.remarks == nullptr || graph.updates().empty()) return;
  const auto any_leaves = [&](bool of_forward) {
    return std::ranges::any_of(trips, [&](const Trip& trip) {
      if (!trip.is_made) return false;
      const Node& producer = graph.node(graph.value(trip.value).producer);
      return (producer.phase == Phase::kForward && !is_for_backward(producer)) == of_forward;
    });
  };
  if (options.recompute.keeps_elsewhere() && !any_leaves(true)) {
    say(options, {"parallel.keep: nothing goes to the host or the disk; of what is named there, the backward pass "
                  "reads no value of 64 KiB or more on a rank, that is not computed again, long after the forward pass",
                  true});
  }
  const bool asks_for_gradients = std::ranges::any_of(
      options.homes, [](const HomeRule& rule) { return rule.of == Held::kGradient && rule.home != Tier::kDevice; });
  if (asks_for_gradients && !any_leaves(false)) {
    say(options, {"parallel.home: no gradient leaves the device; each of those named is read by its update, or by a "
                  "sum, soon after it is made",
                  true});
  }
}

}  // namespace trireme

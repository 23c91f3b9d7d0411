#include <algorithm>
#include <deque>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"

namespace trireme::schedule {
namespace {

class DualPipe {
 public:
  DualPipe(int crew, int crews) : crew_(crew), crews_(crews) {}

  void forward(bool up) { add(Unit::Pass::kForward, up, forwards_[up]++); }
  void backward(bool up, bool in_parts) {
    const int number = backwards_[up]++;
    add(in_parts ? Unit::Pass::kInputGrad : Unit::Pass::kBackward, up, number);
    if (in_parts) waiting_.push_back({Unit::Pass::kWeightGrad, stage(up), number});
  }
  void weight_grad() {
    invariant(!waiting_.empty(), "schedule 'dualpipe-v': crew {} has no weight gradient left", crew_);
    units_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  std::vector<Unit> take() { return std::move(units_); }

 private:
  int stage(bool up) const { return up ? 2 * crews_ - 1 - crew_ : crew_; }
  void add(Unit::Pass pass, bool up, int number) { units_.push_back({pass, stage(up), number}); }

  int crew_, crews_;
  int forwards_[2] = {0, 0};
  int backwards_[2] = {0, 0};
  std::deque<Unit> waiting_;
  std::vector<Unit> units_;
};

}  // namespace

Timetable dual_pipe_v(const ScheduleRequest& request) {
  const int crews = request.crews;
  require(request.micro_batches >= 2 * crews, "schedule 'dualpipe-v': {} for {}; it takes {} or more",
          counted(request.micro_batches, "micro-batch"), counted(crews, "crew"), 2 * crews);
  constexpr bool kDown = false;
  constexpr bool kUp = true;
  Timetable out{.stages = 2 * crews, .micro_batches = request.micro_batches};
  for (int crew = 0; crew < crews; ++crew) {
    const int below = crews - crew - 1;
    DualPipe order(crew, crews);
    for (int i = 0; i < 2 * below; ++i) order.forward(kDown);
    for (int i = 0; i < crew + 1; ++i) {
      order.forward(kDown);
      order.forward(kUp);
    }
    for (int i = 0; i < below; ++i) {
      order.backward(kUp, true);
      order.weight_grad();
      order.forward(kUp);
    }
    // The steady part: each forward pass beside the backward pass of the other side.
    for (int i = 0; i < request.micro_batches - 2 * crews + crew + 1; ++i) {
      order.forward(kDown);
      order.backward(kUp, false);
      order.forward(kUp);
      order.backward(kDown, false);
    }
    for (int i = 0; i < below; ++i) {
      order.backward(kUp, false);
      order.forward(kUp);
      order.backward(kDown, false);
    }
    // From the middle on weight gradients are put off until nothing else is left.
    const int backwards = 2 * (crew + 1);
    for (int i = 0; i < backwards; ++i) order.backward(i % 2 == 0 ? kUp : kDown, i >= backwards / 2);
    for (int i = 0; i < below; ++i) {
      order.weight_grad();
      order.backward(kDown, true);
    }
    for (int i = 0; i < crew + 1; ++i) order.weight_grad();
    out.crews.push_back(order.take());
  }
  return out;
}

}  // namespace trireme::schedule

#include "trireme/exec/background/bound_move.h"

namespace trireme {

BoundMove::BoundMove(const View& from, const View& to, Device& device, DeviceStream& compute, DeviceStream& copies)
    : from_(from), to_(to), compute_(compute), copies_(copies), computed_(device.event()), arrived_(device.event()) {}

void BoundMove::start() {
  compute_.record(*computed_);
  copies_.wait(*computed_);
  copies_.copy(from_, to_);
  copies_.record(*arrived_);
  started_ = true;
}

void BoundMove::wait() {
  if (!started_) return;
  started_ = false;
  compute_.wait(*arrived_);
  ended_ = std::chrono::steady_clock::now();
}

}  // namespace trireme

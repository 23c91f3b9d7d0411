#include "trireme/comm/engine/operation.h"

#include <algorithm>

#include "trireme/base/bytes_text.h"

namespace trireme::comm {

bool Arrivals::ready() const {
  return std::all_of(transfers_.begin(), transfers_.end(), [](const Transfer& transfer) {
    return transfer.state == Transfer::State::kDone || transfer.state == Transfer::State::kFailed;
  });
}

void Arrivals::add_missing(std::vector<int>& world_ranks) const {
  for (const Transfer& transfer : transfers_) {
    if (transfer.state == Transfer::State::kPending) world_ranks.push_back(transfer.peer);
  }
}

int64_t Arrivals::bytes_here() const {
  int64_t bytes = 0;
  for (const Transfer& transfer : transfers_) {
    const bool counts = transfer.counts && transfer.state == Transfer::State::kDone;
    if (counts) bytes += static_cast<int64_t>(transfer.bytes);
  }
  return bytes;
}

void Arrivals::await_resume() const {
  operation_.done_bytes += bytes_here();
  for (Transfer& transfer : transfers_) {
    transfer.counts = false;
    if (transfer.state == Transfer::State::kFailed) {
      // A message alone is lost so; of a collective other members would wait for what is not to come.
      fail(transfer.wrong_size && !operation_.ordered ? ErrorKind::kInvalidArgument : ErrorKind::kComm, "{}: {}: {}{}",
           describe(operation_), operation_.engine->name_of(transfer.peer), transfer.problem, done_text(operation_));
    }
  }
}

std::string seconds_since(Clock::time_point start) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(Clock::now() - start).count());
}

std::string describe(const Operation& operation) {
  const Driver& engine = *operation.engine;
  std::string out = fmt::format("[rank {} of {}] {}", engine.rank(), engine.size(), operation.kind);
  if (operation.peer >= 0) {
    out += fmt::format(" {} rank {}", operation.kind == "send" ? "to" : "from",
                       operation.group->world_ranks()[static_cast<size_t>(operation.peer)]);
  }
  out += fmt::format(" (group {}", operation.group->name());
  if (operation.bytes >= 0) {
    out += fmt::format(", {} {}", bytes_text(static_cast<double>(operation.bytes)), to_string(operation.dtype));
  }
  if (operation.peer >= 0) out += fmt::format(", tag {}", operation.tag);
  return out + ")";
}

std::string done_text(const Operation& operation) {
  const int64_t all = operation.all_bytes >= 0 ? operation.all_bytes : operation.bytes;
  if (all <= 0) return "";
  const int64_t here = operation.waiting != nullptr ? operation.waiting->bytes_here() : 0;
  return fmt::format(", {} of {} done", bytes_text(static_cast<double>(operation.done_bytes + here)),
                     bytes_text(static_cast<double>(all)));
}

std::pmr::memory_resource* Operation::pool() const {
  return &engine->pool();
}

bool Work::done() const {
  return !state_ || state_->finished.load(std::memory_order_acquire) || state_->engine->done(*state_);
}

Clock::time_point Work::ended() const {
  return state_ ? state_->end : Clock::time_point{};
}

void Work::wait() {
  if (!state_) return;
  if (!state_->finished.load(std::memory_order_acquire)) state_->engine->wait(*state_);
  if (state_->error) std::rethrow_exception(state_->error);
}

}  // namespace trireme::comm

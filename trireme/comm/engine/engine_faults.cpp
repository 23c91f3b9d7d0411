// The engine's other half: what happens when a peer leaves, is lost or does not come in time.
#include <algorithm>
#include <cstring>

#include "trireme/base/log.h"
#include "trireme/comm/engine/engine.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto kCheckInterval = 5ms;   // of deadlines and of lost peers
constexpr auto kTellInterval = 500ms;  // of long waits
constexpr auto kHandOver = 500ms;      // spent at most on telling peers that this rank gives up
constexpr auto kFarewell = 10'000ms;   // spent at most on waiting for peers that still need it
constexpr auto kOnTheWay = 10'000ms;   // a message that a notice overtook comes within this time, or never

}  // namespace

void Engine::post_notices() {
  notices_.resize(static_cast<size_t>(size()));
  notice_transfers_.resize(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    Transfer& transfer = notice_transfers_[static_cast<size_t>(peer)];
    transfer.peer = peer;
    transfer.tag = kNoticeTag;
    transfer.data = reinterpret_cast<std::byte*>(&notices_[static_cast<size_t>(peer)]);
    transfer.bytes = sizeof(Notice);
    transport_->receive(transfer);
  }
}

void Engine::read_notices() {
  for (size_t peer = 0; peer < notice_transfers_.size(); ++peer) {
    if (notice_transfers_[peer].state != Transfer::State::kDone || peers_[peer] != Peer::kHere) continue;
    Notice& notice = notices_[peer];
    notice.reason[sizeof(notice.reason) - 1] = '\0';
    peers_[peer] = notice.gave_up != 0 ? Peer::kGaveUp : Peer::kLeft;
    peer_reasons_[peer] = notice.reason;
    told_at_[peer] = Clock::now();
    next_check_ = {};
  }
}

void Engine::tell_peers(bool gave_up, const std::string& reason) {
  std::vector<Notice> notices(static_cast<size_t>(size()));  // these stay until the transport has stopped
  std::vector<Transfer> transfers(static_cast<size_t>(size()));
  bool told = true;
  try {
    tell(notices, transfers, gave_up, reason);
  } catch (const Error& e) {  // of a transport; a world ends all the same, and the others learn it by their deadlines
    told = false;
    TRIREME_LOG(kWarn, "comm", "rank {}: other ranks cannot be told that this one ends its world: {}", rank(),
                e.text());
  }
  transport_->stop(told && !gave_up);
}

void Engine::tell(std::vector<Notice>& notices, std::vector<Transfer>& transfers, bool gave_up,
                  const std::string& reason) {
  for (int peer = 0; peer < size(); ++peer) {
    const Peer state = peers_[static_cast<size_t>(peer)];
    if (peer == rank() || state == Peer::kGaveUp || state == Peer::kLost) continue;
    Transfer& transfer = transfers[static_cast<size_t>(peer)];
    Notice& notice = notices[static_cast<size_t>(peer)];
    notice.gave_up = gave_up ? 1 : 0;
    notice.messages = transport_->sent_to(peer);
    std::memcpy(notice.reason, reason.data(), std::min(reason.size(), sizeof(notice.reason) - 1));
    transfer.peer = peer;
    transfer.tag = kNoticeTag;
    transfer.data = reinterpret_cast<std::byte*>(&notice);
    transfer.bytes = sizeof(Notice);
    transport_->send(transfer);
  }
  const auto is_done = [&] {
    const bool sent = std::none_of(transfers.begin(), transfers.end(), [](const Transfer& transfer) {
      return transfer.state == Transfer::State::kPending;
    });
    if (!sent || gave_up || transport_->delivers_after_stop()) return sent;
    // And stay until the others have all they need from this rank.
    read_notices();
    mark_lost();
    return std::count(peers_.begin(), peers_.end(), Peer::kHere) == 1;
  };
  const auto limit = gave_up || transport_->delivers_after_stop() ? kHandOver : kFarewell;
  for (const auto end = Clock::now() + limit; !is_done() && Clock::now() < end;) {
    if (!transport_->progress()) transport_->rest(1ms);
  }
}

std::string Engine::name_of(int peer) const {
  const auto at = static_cast<size_t>(peer);
  const bool known = at < options_.peers.size() && !options_.peers[at].host.empty();
  return fmt::format("rank {} ({}{})", peer, transport_->describe(peer), known ? " at " + options_.peers[at].host : "");
}

std::string Engine::log_of(int peer) const {
  const auto at = static_cast<size_t>(peer);
  const bool known = at < options_.peers.size() && !options_.peers[at].log.empty();
  return known ? fmt::format(" (its log: {})", options_.peers[at].log) : "";
}

std::exception_ptr Engine::error_of(const Operation& operation, const Cause& cause) const {
  // The reason of a failed operation begins with that operation; its own error has this rank's
  // head.
  return std::make_exception_ptr(Error(cause.kind, fmt::format("{}: {} after {}{}", describe(operation), cause.reason,
                                                               seconds_since(operation.start), done_text(operation))));
}

void Engine::break_world(Cause cause, Operation* culprit) {
  {
    const std::lock_guard lock(inbox_mutex_);
    if (broken_) return;
    broken_ = cause;
    active_.insert(active_.end(), inbox_.begin(), inbox_.end());
    inbox_.clear();
    inbox_filled_.store(false);
    aborted_.store(false);
  }
  tell_peers(true, cause.reason);
  for (const auto& operation : active_) {
    if (operation->finished.load()) continue;
    if (operation.get() == culprit && operation->error) {
      finish(*operation, nullptr);
    } else {
      finish(*operation, error_of(*operation, cause));
    }
  }
  active_.clear();
  finished_.notify_all();
}

void Engine::check() {
  const Clock::time_point now = Clock::now();
  if (now < next_check_) return;
  next_check_ = now + kCheckInterval;
  if (active_.empty()) return;
  mark_lost();
  for (const auto& operation : active_) {
    if (operation->finished.load() || !operation->begun || operation->waiting->ready()) continue;
    if (auto cause = trouble_of(*operation)) return break_world(*cause, operation.get());
  }
  if (options_.on_wait && waiters_.load() > 0 && now >= next_telling_) tell_of_wait(now);
}

// The operation that has waited longest stands for all.
void Engine::tell_of_wait(Clock::time_point now) {
  for (const auto& operation : active_) {
    if (operation->finished.load() || !operation->begun || operation->waiting->ready()) continue;
    if (now - operation->start < std::chrono::duration<double>(kLongWait_s)) continue;
    next_telling_ = now + kTellInterval;
    const std::string text = fmt::format("{} waits for {}", describe(*operation), missing_text(*operation));
    const std::lock_guard telling(telling_);
    told_of_wait_.store(true);
    // The last waiter may have gone meanwhile: then either it sees that this was told, or this that it has gone.
    if (waiters_.load() > 0) {
      options_.on_wait(text);
    } else {
      told_of_wait_.store(false);
    }
    return;
  }
}

std::string Engine::missing_text(const Operation& operation) {
  missing_.clear();
  operation.waiting->add_missing(missing_);
  std::sort(missing_.begin(), missing_.end());
  missing_.erase(std::unique(missing_.begin(), missing_.end()), missing_.end());
  std::string names;
  for (const int peer : missing_) names += (names.empty() ? "" : ", ") + name_of(peer);
  return names;
}

void Engine::mark_lost() {
  std::vector<int> lost;
  transport_->find_lost(lost);
  if (lost.empty()) return;
  // What the lost ones sent before their end still counts.
  while (transport_->progress()) {
  }
  read_notices();
  for (const int peer : lost) {
    Peer& state = peers_[static_cast<size_t>(peer)];
    if (state == Peer::kHere) state = Peer::kLost;
  }
}

// Of a peer that has left: whether all that it sent has been taken here, its notice included. A notice may overtake
// other messages, and one that is asked for only now shows at the next look. What it sent and nobody asks for is given
// up after a while.
bool Engine::owes_nothing(int peer, Clock::time_point now) {
  const auto at = static_cast<size_t>(peer);
  return transport_->taken_from(peer) > notices_[at].messages || now - told_at_[at] > kOnTheWay;
}

// Why this operation, which cannot go on now, never will: a lost peer first, since those that gave
// up did so because of it; then one that gave up; then one that left although it is still needed;
// then the deadline.
std::optional<Engine::Cause> Engine::trouble_of(const Operation& operation) {
  const std::vector<int>& members = operation.group->world_ranks();
  missing_.clear();
  operation.waiting->add_missing(missing_);
  const std::vector<int>& concerned = operation.ordered ? members : missing_;
  const Clock::time_point now = Clock::now();
  const auto first_in = [&](const std::vector<int>& ranks, Peer state) {
    const auto found =
        std::find_if(ranks.begin(), ranks.end(), [&](int rank) { return peers_[static_cast<size_t>(rank)] == state; });
    return found == ranks.end() ? -1 : *found;
  };
  if (const int peer = first_in(concerned, Peer::kLost); peer >= 0) {
    return Cause{ErrorKind::kComm, fmt::format("{} is gone{}", name_of(peer), log_of(peer))};
  }
  if (const int peer = first_in(concerned, Peer::kGaveUp); peer >= 0) {
    return Cause{ErrorKind::kComm,
                 fmt::format("{} gave up: {}", name_of(peer), peer_reasons_[static_cast<size_t>(peer)])};
  }
  for (const int peer : missing_) {
    if (peers_[static_cast<size_t>(peer)] == Peer::kLeft && owes_nothing(peer, now)) {
      return Cause{ErrorKind::kComm, fmt::format("{} has left", name_of(peer))};
    }
  }
  if (now - operation.went_on < options_.deadline) return std::nullopt;
  return Cause{ErrorKind::kTimeout, missing_text(operation) + " did not come in time"};
}

void Engine::leave() {
  {
    const std::lock_guard lock(inbox_mutex_);
    stop_.store(true);
  }
  called_.notify_all();
  transport_->wake();
  if (background_.joinable()) background_.join();
  const std::lock_guard drive(drive_);
  take_inbox();
  if (active_.empty() && !aborted_.load()) {
    const std::lock_guard lock(inbox_mutex_);
    if (!broken_) {
      broken_ = Cause{ErrorKind::kComm, "the world has ended"};
      tell_peers(false, "");
    }
    return;
  }
  std::string reason;
  {
    const std::lock_guard lock(inbox_mutex_);
    reason = abort_reason_;
  }
  if (reason.empty()) reason = fmt::format("rank {} ended its world with operations in flight", rank());
  break_world({ErrorKind::kComm, reason}, nullptr);
}

}  // namespace trireme::comm

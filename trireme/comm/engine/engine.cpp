#include "trireme/comm/engine/engine.h"

#include <pthread.h>

#include <algorithm>

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto kRest = 5ms;   // the longest sleep in the transport
constexpr auto kNap = 100us;  // the shortest of the background thread between looks
constexpr auto kLongestNap = 2ms;
constexpr int64_t kWorthACall = 1 << 20;    // bytes of an operation for which a nap is ended
constexpr int kSpinPasses = 2000;           // some 50 us, before resting, when there is a core for every rank
constexpr int kTriesForDrive = 64;          // before a waiter sleeps while another thread drives
constexpr int kYieldPasses = 8;             // before resting, when there is not
constexpr size_t kOperationsInFlight = 64;  // operations in flight for which there is room from the start

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

Engine::Engine(const EngineOptions& options, std::unique_ptr<Transport> transport)
    : options_(options),
      transport_(std::move(transport)),
      peers_(static_cast<size_t>(options.size), Peer::kHere),
      peer_reasons_(static_cast<size_t>(options.size)),
      told_at_(static_cast<size_t>(options.size)) {
  active_.reserve(kOperationsInFlight);
  inbox_.reserve(kOperationsInFlight);
  missing_.reserve(2 * static_cast<size_t>(options.size));  // a receive and a send each
  post_notices();
  if (options_.background && options_.size > 1) {
    background_ = std::thread([this] { run_background(); });
  }
  if (options_.watch) {
    watching_ = std::thread([this] {
      pthread_setname_np(pthread_self(), kProgressThread);
      if (const std::string why = options_.watch->wait(); !why.empty()) this->abort(why);
    });
  }
}

Engine::~Engine() {
  leave();
  if (!watching_.joinable()) return;
  options_.watch->release();
  watching_.join();
}

Work Engine::start(const std::shared_ptr<Operation>& operation) {
  operation->start = Clock::now();
  bool call_background = false;
  {
    const std::lock_guard lock(inbox_mutex_);
    if (operation->ordered) operation->turn = operation->turns->take();
    if (broken_) {
      operation->error = error_of(*operation, *broken_);
      operation->task = Task();
      operation->finished.store(true, std::memory_order_release);
      return Work(operation);
    }
    inbox_.push_back(operation);
    inbox_filled_.store(true, std::memory_order_release);
    pending_.fetch_add(1);
    call_background = asleep_.load() || operation->bytes >= kWorthACall;
  }
  if (std::unique_lock lock(drive_, std::try_to_lock); lock) {
    pass();
  } else if (resting_.load()) {
    transport_->wake();
  }
  if (call_background && !operation->finished.load()) called_.notify_all();
  return Work(operation);
}

bool Engine::done(Operation& operation) {
  if (!operation.finished.load(std::memory_order_acquire) && !background_.joinable()) {
    if (std::unique_lock lock(drive_, std::try_to_lock); lock) pass();
  }
  return operation.finished.load(std::memory_order_acquire);
}

bool Engine::has_messages(const Group& group) {
  if (resting_.load()) transport_->wake();
  const std::lock_guard drive(drive_);
  const std::lock_guard inbox(inbox_mutex_);
  const auto is_of = [&](const std::shared_ptr<Operation>& operation) {
    return operation->group == &group && !operation->ordered && !operation->finished.load(std::memory_order_acquire);
  };
  return std::ranges::any_of(active_, is_of) || std::ranges::any_of(inbox_, is_of);
}

void Engine::wait(Operation& operation) {
  waiters_.fetch_add(1);
  int quiet_passes = 0;
  int refusals = 0;
  while (!operation.finished.load(std::memory_order_acquire)) {
    if (std::unique_lock lock(drive_, std::try_to_lock); lock) {
      if (pass()) {
        quiet_passes = 0;
      } else if (!operation.finished.load(std::memory_order_acquire)) {
        idle(quiet_passes);
      }
      continue;
    }
    // Another thread drives. The one in the background steps aside when it sees the waiter, mostly
    // at once.
    if (resting_.load()) transport_->wake();
    if (++refusals % kTriesForDrive != 0) {
      if (options_.crowded) {
        std::this_thread::yield();
      } else {
        pause_briefly();
      }
      continue;
    }
    std::unique_lock lock(inbox_mutex_);
    if (!operation.finished.load(std::memory_order_acquire)) finished_.wait_for(lock, kNap);
  }
  waiters_.fetch_sub(1);
  if (!told_of_wait_.load()) return;
  const std::lock_guard telling(telling_);
  if (told_of_wait_.exchange(false)) options_.on_wait("");
}

// Called after a round in which nothing moved, with drive_ held.
void Engine::idle(int& quiet_passes) {
  ++quiet_passes;
  if (options_.crowded) {
    if (quiet_passes < kYieldPasses) return std::this_thread::yield();
  } else if (quiet_passes < kSpinPasses) {
    return pause_briefly();
  }
  resting_.store(true);
  transport_->arm();
  if (pass()) {
    transport_->disarm();
  } else {
    transport_->rest(kRest);
  }
  resting_.store(false);
  check();
}

void Engine::run_background() {
  pthread_setname_np(pthread_self(), kProgressThread);
  int quiet_passes = 0;
  std::chrono::microseconds nap = kNap;
  while (!stop_.load()) {
    std::unique_lock lock(drive_, std::defer_lock);
    if (pending_.load() == 0 || waiters_.load() > 0 || !lock.try_lock()) {
      nap = doze(nap);
      continue;
    }
    nap = kNap;
    if (pass()) {
      quiet_passes = 0;
    } else if (pending_.load() > 0 && waiters_.load() == 0) {
      // Nobody waits, and others may compute on this core: a few looks, then rest.
      quiet_passes = std::max(quiet_passes, kSpinPasses - kYieldPasses);
      idle(quiet_passes);
    }
  }
}

// The background thread looks again after a nap, and naps longer each time that it is not needed,
// so that it costs nothing to those who wait for what they start; at last it sleeps until it is
// called. Returns the next nap.
std::chrono::microseconds Engine::doze(std::chrono::microseconds nap) {
  std::unique_lock lock(inbox_mutex_);
  if (stop_.load()) return nap;
  if (nap < kLongestNap || pending_.load() > 0) {
    called_.wait_for(lock, nap);
    return std::min<std::chrono::microseconds>(2 * nap, kLongestNap);
  }
  asleep_.store(true);
  called_.wait(lock, [&] { return stop_.load() || pending_.load() > 0; });
  asleep_.store(false);
  return kNap;
}

bool Engine::pass() {
  if (inbox_filled_.load(std::memory_order_acquire)) take_inbox();
  if (aborted_.load(std::memory_order_relaxed)) {
    std::string reason;
    {
      const std::lock_guard lock(inbox_mutex_);
      reason = abort_reason_;
    }
    mark_lost();  // a peer that is gone is told nothing
    break_world({ErrorKind::kComm, reason}, nullptr);
    return true;
  }
  bool moved = transport_->progress();
  if (moved) read_notices();
  for (size_t i = 0; i < active_.size(); ++i) {
    const std::shared_ptr<Operation> operation = active_[i];
    moved |= step(*operation);
    if (active_.empty()) return true;  // the world broke
  }
  std::erase_if(active_, [](const auto& operation) { return operation->finished.load(std::memory_order_relaxed); });
  if (++passes_ % 256 == 0) check();
  return moved;
}

void Engine::take_inbox() {
  const std::lock_guard lock(inbox_mutex_);
  active_.insert(active_.end(), inbox_.begin(), inbox_.end());
  inbox_.clear();
  inbox_filled_.store(false);
}

// Whether one before it rests, of the same peer and tag: those begin in the order in which they were started.
bool Engine::is_held_back(const Operation& message) const {
  const auto first = std::ranges::find_if(active_, [&](const std::shared_ptr<Operation>& other) {
    return !other->begun && other->group == message.group && other->kind == message.kind &&
           other->peer == message.peer && other->tag == message.tag;
  });
  return first->get() != &message;
}

// Before the next part of the operation, which could begin.
bool Engine::rests(Operation& operation) {
  const Clock::time_point now = Clock::now();
  if (!operation.has_rest) operation.rests_until = now + options_.rest();
  operation.has_rest = now < operation.rests_until;
  return operation.has_rest;
}

bool Engine::step(Operation& operation) {
  if (!operation.begun) {
    if (operation.ordered && !operation.turns->is_turn_of(operation.turn)) return false;
    if (options_.rest && ((!operation.ordered && is_held_back(operation)) || rests(operation))) return false;
    operation.begun = true;
    operation.resume_at = operation.task.handle();
  } else if (!operation.waiting->ready() || (options_.rest && rests(operation))) {
    return false;
  }
  operation.waiting = nullptr;
  operation.went_on = Clock::now();
  operation.resume_at.resume();
  if (!operation.task.done()) return true;
  if (operation.task.error()) {
    Cause cause;
    try {
      std::rethrow_exception(operation.task.error());
    } catch (const Error& e) {
      cause = {e.kind(), e.text()};
    } catch (const std::exception& e) {
      cause = {ErrorKind::kInternal, e.what()};
    }
    operation.error = operation.task.error();
    if (cause.kind == ErrorKind::kInvalidArgument) {  // all whom it concerns know, and nobody is gone
      finish(operation, nullptr);
    } else {
      break_world(cause, &operation);
    }
    return true;
  }
  finish(operation, nullptr);
  return true;
}

void Engine::finish(Operation& operation, std::exception_ptr error) {
  if (!operation.error) operation.error = std::move(error);
  operation.task = Task();
  if (operation.ordered) operation.turns->end();
  pending_.fetch_sub(1);
  const bool others_wait = waiters_.load() > 0;
  operation.end = Clock::now();
  operation.finished.store(true, std::memory_order_release);
  if (others_wait) finished_.notify_all();
}

void Engine::abort(std::string reason) {
  {
    const std::lock_guard lock(inbox_mutex_);
    if (abort_reason_.empty()) abort_reason_ = std::move(reason);
    aborted_.store(true);
  }
  transport_->wake();
}

void Engine::count(std::string_view kind, int64_t bytes) {
  const std::lock_guard lock(inbox_mutex_);
  auto found = traffic_.find(kind);
  if (found == traffic_.end()) {
    found = traffic_.emplace(std::string(kind), World::Traffic{std::string(kind)}).first;
  }
  found->second.calls += 1;
  found->second.bytes += bytes;
}

std::vector<World::Traffic> Engine::traffic() const {
  const std::lock_guard lock(inbox_mutex_);
  std::vector<World::Traffic> out;
  for (const auto& [kind, traffic] : traffic_) out.push_back(traffic);
  return out;
}

}  // namespace trireme::comm

// The server of the key-value store between processes (tcp_store.h): one thread that polls all connections.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/stores/tcp_store.h"
#include "trireme/comm/stores/tcp_store_wire.h"

namespace trireme::comm {

namespace {

enum class State { kHandshake, kReady, kWaiting, kClosing };

struct Connection {
  int fd = -1;
  State state = State::kHandshake;
  std::string in;
  std::string out;
  size_t sent = 0;  // of `out`
  std::string nonce;
  std::string key;                   // waited for
  SteadyClock::time_point deadline;  // of the handshake or the wait
  // It has not proven the secret, or failed to, and is told so.
  bool unproven() const { return state == State::kHandshake || state == State::kClosing; }
};

int listen_on(const TcpStoreServerOptions& options) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(options.address.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  require(status == 0, "tcp store: '{}' is not an address to listen on; give a numeric one such as 127.0.0.1",
          options.address);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool ok = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1024) == 0;
  const int error = errno;
  freeaddrinfo(found);
  if (!ok) {
    if (fd >= 0) close(fd);
    fail(ErrorKind::kIo, "tcp store: cannot listen on {}:{} ({})", options.address, options.port, std::strerror(error));
  }
  return fd;
}

uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

// One thread, one poll: no connection can hold another up, and requests need no locks.
class TcpStoreServer::Loop {
 public:
  explicit Loop(const TcpStoreServerOptions& options)
      : options_(options), listener_(listen_on(options)), port_(port_of(listener_)) {
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) {
      close(listener_);
      fail(ErrorKind::kIo, "tcp store: cannot make an event ({})", std::strerror(errno));
    }
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    stop_ = true;
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof one);
    thread_.join();
    for (auto& [id, connection] : connections_) close(connection.fd);
    close(listener_);
    close(wake_);
  }

  const std::string& address() const { return options_.address; }
  uint16_t port() const { return port_; }
  Counts counts() const {
    const std::lock_guard lock(counts_mutex_);
    return counts_;
  }

 private:
  static constexpr std::chrono::milliseconds kBreath{50};
  using Id = uint64_t;  // grows: the smallest is the oldest

  void run() {
    std::vector<pollfd> polled;
    std::vector<Id> ids;
    while (!stop_) {
      const bool listens = SteadyClock::now() >= accept_again_;
      polled.assign({{wake_, POLLIN, 0}, {listens ? listener_ : -1, POLLIN, 0}});
      ids.clear();
      for (auto& [id, c] : connections_) {
        polled.push_back({c.fd, events_of(c), 0});
        ids.push_back(id);
      }
      const int ready = poll(polled.data(), polled.size(), timeout_ms());
      if (ready < 0 && errno != EINTR) break;
      for (size_t i = 0; ready > 0 && i < ids.size(); ++i) {
        if (polled[i + 2].revents != 0) serve(ids[i], polled[i + 2].revents);
      }
      if (ready > 0 && polled[1].revents != 0) accept_all();
      end_overdue();
    }
  }

  static short events_of(const Connection& c) {
    short events = POLLRDHUP;
    // While its request waits, or its reply is on the way, a client has nothing more to say.
    if (c.state != State::kWaiting && c.out.empty()) events |= POLLIN;
    if (!c.out.empty()) events |= POLLOUT;
    return events;
  }

  int timeout_ms() const {
    std::chrono::milliseconds next{60'000};
    const auto now = SteadyClock::now();
    if (now < accept_again_) next = kBreath;
    for (const auto& [id, c] : connections_) {
      if (c.state == State::kReady) continue;
      next = std::min(next, std::chrono::ceil<std::chrono::milliseconds>(c.deadline - now));
    }
    return static_cast<int>(std::max<int64_t>(next.count(), 0));
  }

  void accept_all() {
    for (;;) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        const bool out_of_descriptors = errno == EMFILE || errno == ENFILE;
        if (out_of_descriptors && drop_oldest_unproven()) continue;
        if (out_of_descriptors) accept_again_ = SteadyClock::now() + kBreath;  // asking again at once would only spin
        return;
      }
      if (unproven_ >= options_.max_pending) drop_oldest_unproven();
      if (connections_.size() >= options_.max_clients + options_.max_pending) {
        close(fd);
        continue;
      }
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      Connection& c = connections_[next_id_++];
      c.fd = fd;
      c.deadline = SteadyClock::now() + options_.handshake_deadline;
      c.nonce = wire::bytes_of(random_secret());
      c.out = std::string(wire::kStoreMagic) + c.nonce;
      ++unproven_;
      flush(next_id_ - 1, c);
    }
  }

  // A handshake takes well under a millisecond, so the oldest open one is the least likely to be
  // honest.
  bool drop_oldest_unproven() {
    for (auto& [id, c] : connections_) {
      if (!c.unproven()) continue;
      if (c.state == State::kHandshake) count(&Counts::expired);
      drop(id);
      return true;
    }
    return false;
  }

  void end_overdue() {
    const auto now = SteadyClock::now();
    std::vector<Id> overdue;
    for (auto& [id, c] : connections_) {
      if (c.state != State::kReady && c.deadline <= now) overdue.push_back(id);
    }
    for (const Id id : overdue) {
      Connection& c = connections_.at(id);
      if (c.state == State::kWaiting) {
        reply(id, c, wire::Kind::kTimeout, {}, 0);
      } else {
        if (c.state == State::kHandshake) count(&Counts::expired);
        drop(id);
      }
    }
  }

  void serve(Id id, short events) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& c = found->second;
    if ((events & POLLOUT) != 0 && !flush(id, c)) return;
    if ((events & POLLIN) != 0) {
      if (!read_some(id, c)) return;
    } else if ((events & (POLLERR | POLLHUP | POLLNVAL | POLLRDHUP)) != 0) {
      drop(id);
    }
  }

  // False when the connection is gone.
  bool read_some(Id id, Connection& c) {
    char buffer[65536];
    const size_t room = c.state == State::kHandshake ? wire::kAnswerBytes - c.in.size() : sizeof buffer;
    const ssize_t got = recv(c.fd, buffer, room, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) {
      if (c.state == State::kHandshake) count(&Counts::refused);
      return drop(id);
    }
    if (c.state == State::kClosing) return true;  // what comes after a refusal is not kept
    c.in.append(buffer, static_cast<size_t>(got));
    if (c.state == State::kHandshake) return c.in.size() < wire::kAnswerBytes || check_proof(id, c);
    return take_request(id, c);
  }

  bool check_proof(Id id, Connection& c) {
    const std::string answer = c.in;
    c.in.clear();
    const std::string_view client_nonce = std::string_view(answer).substr(0, 32);
    const Digest expected = wire::proof(options_.secret, "client", c.nonce, client_nonce);
    const bool known = equal_in_constant_time(expected, wire::digest_of(answer.substr(32)));
    if (known) --unproven_;
    count(known ? &Counts::admitted : &Counts::refused);
    // Again when there are twice as many: whoever knocks for long does not fill the log.
    if (const int64_t refused = counts().refused; !known && refused >= say_refused_at_) {
      TRIREME_LOG(kWarn, "comm", "tcp store refused a connection that does not know the job secret  refused={}",
                  refused);
      say_refused_at_ = 2 * refused;
    }
    c.state = known ? State::kReady : State::kClosing;
    c.out = known ? wire::bytes_of(wire::proof(options_.secret, "server", c.nonce, client_nonce))
                  : std::string(wire::kProofBytes, '\0');
    return flush(id, c);
  }

  bool take_request(Id id, Connection& c) {
    const wire::Found found = wire::read_request(c.in).found;
    if (found == wire::Found::kPart) return true;
    if (found == wire::Found::kImpossible) {
      count(&Counts::broken);
      return drop(id);
    }
    const std::string in = std::exchange(c.in, {});
    const wire::Request request = wire::read_request(in);
    const std::string key(request.key);
    switch (request.kind) {
      case wire::Kind::kSet:
        return put(id, c, key, std::string(request.value));
      case wire::Kind::kGet:
        return look_up(id, c, key, request.number);
      default:
        return add(id, c, key, request.number);
    }
  }

  bool put(Id id, Connection& c, const std::string& key, std::string value) {
    values_[key] = std::move(value);
    const bool alive = reply(id, c, wire::Kind::kDone, {}, 0);
    wake_waiters(key);
    return alive;
  }

  bool look_up(Id id, Connection& c, const std::string& key, int64_t wait_ms) {
    if (const auto found = values_.find(key); found != values_.end()) {
      return reply(id, c, wire::Kind::kDone, found->second, 0);
    }
    constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1000;
    c.state = State::kWaiting;
    c.key = key;
    c.deadline = SteadyClock::now() + std::chrono::milliseconds(std::clamp<int64_t>(wait_ms, 0, kYear));
    return true;
  }

  // Counters are values in decimal, so that `get` reads them too.
  bool add(Id id, Connection& c, const std::string& key, int64_t amount) {
    std::string& text = values_.try_emplace(key, "0").first->second;
    int64_t before = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, before);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      return reply(id, c, wire::Kind::kNoNumber, text.substr(0, 64), 0);
    }
    int64_t sum = 0;
    if (__builtin_add_overflow(before, amount, &sum)) return reply(id, c, wire::Kind::kTooLarge, text.substr(0, 64), 0);
    text = std::to_string(sum);
    const bool alive = reply(id, c, wire::Kind::kDone, {}, sum);
    wake_waiters(key);
    return alive;
  }

  void wake_waiters(const std::string& key) {
    std::vector<Id> waiters;
    for (const auto& [id, c] : connections_) {
      if (c.state == State::kWaiting && c.key == key) waiters.push_back(id);
    }
    for (const Id id : waiters) reply(id, connections_.at(id), wire::Kind::kDone, values_.at(key), 0);
  }

  bool reply(Id id, Connection& c, wire::Kind kind, std::string_view value, int64_t number) {
    c.state = State::kReady;
    c.key.clear();
    c.out = wire::message(kind, {}, value, number);
    return flush(id, c);
  }

  // Sends what the socket takes; the rest goes when poll says so.
  bool flush(Id id, Connection& c) {
    while (c.sent < c.out.size()) {
      const ssize_t n = send(c.fd, c.out.data() + c.sent, c.out.size() - c.sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return true;
      if (n < 0) return drop(id);
      c.sent += static_cast<size_t>(n);
    }
    c.out.clear();
    c.sent = 0;
    if (c.state != State::kClosing) return true;
    shutdown(c.fd, SHUT_WR);  // the refusal arrives before the end does
    return true;
  }

  bool drop(Id id) {
    const auto found = connections_.find(id);
    if (found->second.unproven()) --unproven_;
    close(found->second.fd);
    connections_.erase(found);
    return false;
  }

  void count(int64_t Counts::*what) {
    const std::lock_guard lock(counts_mutex_);
    ++(counts_.*what);
  }

  TcpStoreServerOptions options_;
  int listener_;
  uint16_t port_;
  int wake_ = -1;
  std::atomic<bool> stop_{false};
  SteadyClock::time_point accept_again_;
  std::map<Id, Connection> connections_;
  Id next_id_ = 0;
  size_t unproven_ = 0;
  std::unordered_map<std::string, std::string> values_;
  int64_t say_refused_at_ = 1;
  mutable std::mutex counts_mutex_;
  Counts counts_;
  std::thread thread_;
};

TcpStoreServer::TcpStoreServer(const TcpStoreServerOptions& options) : loop_(std::make_unique<Loop>(options)) {}
TcpStoreServer::~TcpStoreServer() = default;
const std::string& TcpStoreServer::address() const {
  return loop_->address();
}
uint16_t TcpStoreServer::port() const {
  return loop_->port();
}
TcpStoreServer::Counts TcpStoreServer::counts() const {
  return loop_->counts();
}

}  // namespace trireme::comm

#include "trireme/launch/cluster/gate.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/launch/cluster/address.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBreath{50};  // before the next try to let in, or to listen
constexpr milliseconds kClosing{2};  // in which gRPC closes what was ended
constexpr double kHonest_s =
    0.25;  // in which who knows the secret proves it, however many nodes of a large job come at once
constexpr int kBacklog = 1024;
constexpr int kLeftFree = 32;  // descriptors, for the rest of the process

// Of the addresses as the system has them; one of IPv4 on a socket of IPv6 is written as IPv4.
std::string text_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
      sockaddr_storage four{};
      auto& in = reinterpret_cast<sockaddr_in&>(four);
      in.sin_family = AF_INET;
      in.sin_port = six.sin6_port;
      std::memcpy(&in.sin_addr, six.sin6_addr.s6_addr + 12, 4);
      return text_of(four);
    }
  }
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof address, host, sizeof host, port, sizeof port,
              NI_NUMERICHOST | NI_NUMERICSERV);
  return fmt::format("{} {}", host, port);
}

int listen_at(const std::string& address, uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  require(status == 0, "scheduler: '{}' is not an address to listen at; give a numeric one such as 127.0.0.1", address);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool ok = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, kBacklog) == 0;
  const int error = errno;
  freeaddrinfo(found);
  if (!ok && fd >= 0) close(fd);
  errno = error;
  return ok ? fd : -1;
}

uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

int most_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1 << 20;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

// A new descriptor is the lowest that is free: from here on too few are.
int first_too_high() {
  return most_descriptors() - std::min(kLeftFree, most_descriptors() / 4);
}

}  // namespace

std::string host_port_of_peer(const std::string& peer) {
  std::string plain;
  for (size_t i = peer.find(':') + 1; i < peer.size(); ++i) {
    int byte = 0;
    const bool escaped = peer[i] == '%' && i + 2 < peer.size() &&
                         std::from_chars(peer.data() + i + 1, peer.data() + i + 3, byte, 16).ptr == peer.data() + i + 3;
    plain += escaped ? static_cast<char>(byte) : peer[i];
    if (escaped) i += 2;
  }
  std::erase_if(plain, [](char c) { return c == '[' || c == ']'; });
  const size_t colon = plain.rfind(':');
  if (colon != std::string::npos) plain[colon] = ' ';
  return plain;
}

Gate::Gate(const GateOptions& options) : options_(options), listener_(listen_at(options.address, options.port)) {
  if (listener_ < 0) {
    fail(ErrorKind::kIo, "scheduler: cannot listen at {} ({}); name another port, or end what listens there",
         host_port_text(options.address, options.port), std::strerror(errno));
  }
  port_ = port_of(listener_);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) {
    ::close(listener_);
    fail(ErrorKind::kIo, "scheduler: cannot make an event ({})", std::strerror(errno));
  }
}

Gate::~Gate() {
  close();
  ::close(wake_);
}

void Gate::close() {
  stop_ = true;
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  if (listener_ >= 0) ::close(listener_);
  listener_ = -1;
  const std::lock_guard lock(mutex_);
  while (!unproven_.empty()) end(unproven_.begin());
}

void Gate::open(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { run(); });
}

void Gate::prove(const std::string& peer) {
  const std::string wanted = host_port_of_peer(peer);
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find(unproven_, wanted, &Unproven::peer);
  if (at == unproven_.end()) return;
  ::close(at->socket);
  unproven_.erase(at);
}

void Gate::run() {
  while (!stop_) {
    milliseconds most{60'000};
    if (!paused_.passed()) most = paused_.remaining();
    {
      const std::lock_guard lock(mutex_);
      if (!unproven_.empty()) most = std::clamp(unproven_.front().prove_by.remaining(), milliseconds(1), most);
    }
    turn(most);
  }
}

void Gate::turn(milliseconds most) {
  std::vector<pollfd> polled{{wake_, POLLIN, 0}, {paused_.passed() ? listener_ : -1, POLLIN, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (const Unproven& one : unproven_) polled.push_back({one.socket, POLLRDHUP, 0});
  }
  const int ready = poll(polled.data(), polled.size(), static_cast<int>(most.count()));
  {
    const std::lock_guard lock(mutex_);
    auto seen = polled.begin() + 2;  // in the order of the list, which may have become shorter
    for (auto at = unproven_.begin(); at != unproven_.end();) {
      seen = std::find_if(seen, polled.end(), [&](const pollfd& one) { return one.fd == at->socket; });
      const bool gone = ready > 0 && seen != polled.end() && seen->revents != 0;
      const bool late = at->prove_by.passed();
      if (late && !gone) ended_.fetch_add(1);
      at = gone || late ? end(at) : std::next(at);
    }
  }
  if (listener_ < 0 || (ready > 0 && (polled[1].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0)) return listen_again();
  if (ready > 0 && (polled[1].revents & POLLIN) != 0) let_in();
}

void Gate::let_in() {
  for (int i = 0; i < kBacklog && !stop_; ++i) {  // then what is unproven is looked at
    if (!let_one_in()) return;
  }
}

// False when there are no more for now.
bool Gate::let_one_in() {
  {
    const std::lock_guard lock(mutex_);
    if (unproven_.size() >= options_.max_unproven && unproven_.front().prove_by.elapsed_s() < kHonest_s) {
      pause(kClosing);
      return false;
    }
  }
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  const int error = fd < 0 ? errno : 0;
  if (error == EINTR || error == ECONNABORTED) return true;
  if (error == EINVAL || error == EBADF || error == ENOTSOCK) listen_again();
  const bool out = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
  if (fd < 0 && !out) return false;
  const int second = out ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
  const bool crowded = second < 0 || std::max(fd, second) >= first_too_high();
  bool none_to_end = false;
  {
    const std::lock_guard lock(mutex_);
    none_to_end = unproven_.empty();
    if (crowded || unproven_.size() >= options_.max_unproven) end_oldest();
    if (second >= 0) unproven_.push_back({second, text_of(from), Deadline(options_.prove_by)});
  }
  if (second >= 0) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    take_(fd);
  } else if (fd >= 0) {
    ::close(fd);
  }
  if (!crowded) return true;
  pause(none_to_end ? kBreath : kClosing);  // the descriptors of what was ended come back in a moment
  say_crowded();
  return false;
}

void Gate::say_crowded() {
  if (++times_full_ < say_full_at_) return;
  say_full_at_ = 2 * times_full_;
  TRIREME_LOG(kWarn, "launch",
              "scheduler: connections wait because nearly all of the {} descriptors are in use (RLIMIT_NOFILE; 'ulimit "
              "-n' raises it)  times={}",
              most_descriptors(), times_full_);
}

// With mutex_ held, as end().
void Gate::end_oldest() {
  if (unproven_.empty()) return;
  ended_.fetch_add(1);
  end(unproven_.begin());
}

Gate::Place Gate::end(Place at) {
  shutdown(at->socket, SHUT_RDWR);  // gRPC reads the end, and closes its descriptor
  ::close(at->socket);
  return unproven_.erase(at);
}

void Gate::listen_again() {
  if (listener_ >= 0) {
    ::close(listener_);
    TRIREME_LOG(kWarn, "launch", "scheduler: the listener at {} failed and is made again",
                host_port_text(options_.address, port_));
  }
  listener_ = listen_at(options_.address, port_);
  if (listener_ < 0) paused_ = Deadline(kBreath);
}

}  // namespace trireme::launch

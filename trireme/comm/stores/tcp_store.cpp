#include "trireme/comm/stores/tcp_store.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/stores/tcp_store_wire.h"

namespace trireme::comm {

namespace {

using std::chrono::milliseconds;

// What the server needs beyond the time a request waits there: to be scheduled and to answer.
constexpr milliseconds kAnswerTime{30'000};

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

enum class Outcome { kOk, kClosed, kLate };

Outcome wait_for(int fd, short events, const Deadline& deadline) {
  for (;;) {
    pollfd polled{fd, events, 0};
    const auto left = std::min<int64_t>(deadline.remaining().count(), 1'000'000);
    const int ready = poll(&polled, 1, static_cast<int>(left));
    if (ready > 0) return Outcome::kOk;
    if (ready < 0 && errno != EINTR) return Outcome::kClosed;
    if (deadline.passed()) return Outcome::kLate;
  }
}

Outcome send_all(int fd, std::string_view bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      if (const Outcome o = wait_for(fd, POLLOUT, deadline); o != Outcome::kOk) return o;
    } else if (errno != EINTR) {
      return Outcome::kClosed;
    }
  }
  return Outcome::kOk;
}

Outcome recv_all(int fd, std::string& bytes, size_t count, const Deadline& deadline) {
  bytes.resize(count);
  for (size_t got = 0; got < count;) {
    const ssize_t n = recv(fd, bytes.data() + got, count - got, 0);
    if (n > 0) {
      got += static_cast<size_t>(n);
    } else if (n == 0) {
      return Outcome::kClosed;
    } else if (errno == EAGAIN) {
      if (const Outcome o = wait_for(fd, POLLIN, deadline); o != Outcome::kOk) return o;
    } else if (errno != EINTR) {
      return Outcome::kClosed;
    }
  }
  return Outcome::kOk;
}

class TcpStore final : public Store {
 public:
  explicit TcpStore(TcpStoreOptions options) : options_(std::move(options)) {
    const bool once = options_.single_attempt.count() > 0;
    const Deadline deadline(once ? options_.single_attempt : options_.connect_deadline);
    idle_.push_back(connect_until(deadline, once));
  }

  void set(std::string_view key, std::string_view value) override {
    check_key(key);
    require(value.size() <= kMaxStoreValue, "store: value of '{}' has {} bytes; at most {} are allowed", key,
            value.size(), kMaxStoreValue);
    call("set", key, wire::message(wire::Kind::kSet, key, value, 0), milliseconds(0));
  }

  std::string get(std::string_view key, milliseconds deadline) override {
    check_key(key);
    return call("get", key, wire::message(wire::Kind::kGet, key, {}, deadline.count()), deadline).value;
  }

  int64_t add(std::string_view key, int64_t amount) override {
    check_key(key);
    return call("add", key, wire::message(wire::Kind::kAdd, key, {}, amount), milliseconds(0)).number;
  }

 private:
  struct Reply {
    std::string value;
    int64_t number = 0;
  };

  static void check_key(std::string_view key) {
    require(key.size() <= kMaxStoreKey, "store: key '{}...' has {} bytes; at most {} are allowed", key.substr(0, 32),
            key.size(), kMaxStoreKey);
  }

  std::string where() const { return fmt::format("tcp store {}:{}", options_.address, options_.port); }

  Reply call(std::string_view operation, std::string_view key, const std::string& request, milliseconds server_waits) {
    Socket socket = take_connection();
    const Deadline deadline(server_waits + kAnswerTime);
    std::string bytes;
    Outcome outcome = send_all(socket.fd(), request, deadline);
    if (outcome == Outcome::kOk) outcome = recv_all(socket.fd(), bytes, wire::kHeaderBytes, deadline);
    check(outcome, operation, key, deadline);
    const wire::Header head = wire::header(bytes);
    const auto kind = static_cast<wire::Kind>(head.kind);
    if (!wire::is_reply(head)) {
      fail(ErrorKind::kComm, "{}: it answered {} '{}' with bytes that are not a reply", where(), operation, key);
    }
    check(recv_all(socket.fd(), bytes, head.value_bytes, deadline), operation, key, deadline);
    {
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(socket));
    }
    require(kind != wire::Kind::kNoNumber, "store: key '{}' holds '{}', which is not a number to add to", key, bytes);
    require(kind != wire::Kind::kTooLarge,
            "store: key '{}' holds '{}'; with what is added it is more than an int64 holds", key, bytes);
    if (kind == wire::Kind::kTimeout) {
      fail(ErrorKind::kTimeout, "{}: nobody set key '{}' within {}", where(), key,
           duration_text(std::chrono::duration<double>(server_waits).count()));
    }
    return {std::move(bytes), head.number};
  }

  void check(Outcome outcome, std::string_view operation, std::string_view key, const Deadline& deadline) const {
    if (outcome == Outcome::kClosed) {
      fail(ErrorKind::kComm, "{}: it closed the connection during {} '{}', {} in; the launcher may have ended", where(),
           operation, key, duration_text(deadline.elapsed_s()));
    }
    if (outcome == Outcome::kLate) {
      fail(ErrorKind::kTimeout, "{}: no answer to {} '{}' within {}", where(), operation, key,
           duration_text(std::chrono::duration<double>(deadline.span()).count()));
    }
  }

  Socket take_connection() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        Socket socket = std::move(idle_.back());
        idle_.pop_back();
        return socket;
      }
    }
    return connect_until(Deadline(options_.connect_deadline), false);
  }

  Socket connect_until(const Deadline& deadline, bool once) const {
    std::string trouble = "no attempt";
    for (milliseconds pause{2};; pause = std::min(pause * 2, milliseconds(200))) {
      Socket socket = connect_once(deadline, trouble);
      if (socket.fd() >= 0 && shake_hands(socket.fd(), deadline, trouble)) return socket;
      if (once || deadline.remaining() <= pause) {
        fail(ErrorKind::kComm, "{}: cannot connect within {} ({}); is the launcher running there?", where(),
             duration_text(std::chrono::duration<double>(deadline.span()).count()), trouble);
      }
      std::this_thread::sleep_for(pause);
    }
  }

  Socket connect_once(const Deadline& deadline, std::string& trouble) const {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(options_.port);
    if (const int status = getaddrinfo(options_.address.c_str(), port.c_str(), &hints, &found); status != 0) {
      trouble = gai_strerror(status);
      return Socket();
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
    int left = 0;
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) ++left;
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next, --left) {
      Socket socket = connect_to(*at, Deadline(deadline.remaining() / left), trouble);
      if (socket.fd() >= 0) return socket;
    }
    return Socket();
  }

  // One of the addresses of a name, at some of which nobody may listen.
  static Socket connect_to(const addrinfo& address, const Deadline& deadline, std::string& trouble) {
    Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int error = errno;
    if (socket.fd() >= 0) {
      error = ::connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
      if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        error = ETIMEDOUT;
        if (wait_for(socket.fd(), POLLOUT, deadline) == Outcome::kOk) {
          getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
        }
      }
    }
    if (error != 0) {
      trouble = std::strerror(error);
      return Socket();
    }
    const int on = 1;
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return socket;
  }

  // False when it is worth another attempt: a busy server ends the oldest handshakes.
  bool shake_hands(int fd, const Deadline& deadline, std::string& trouble) const {
    std::string hello;
    if (recv_all(fd, hello, wire::kHelloBytes, deadline) != Outcome::kOk) {
      trouble = "it did not greet";
      return false;
    }
    require(hello.starts_with(wire::kStoreMagic), "{}: what listens there is not a store of this version of trireme",
            where());
    const std::string server_nonce = hello.substr(wire::kStoreMagic.size());
    const std::string client_nonce = wire::bytes_of(random_secret());
    const std::string mine =
        client_nonce + wire::bytes_of(wire::proof(options_.secret, "client", server_nonce, client_nonce));
    std::string answer;
    if (send_all(fd, mine, deadline) != Outcome::kOk ||
        recv_all(fd, answer, wire::kProofBytes, deadline) != Outcome::kOk) {
      trouble = "it ended the handshake";
      return false;
    }
    if (answer == std::string(wire::kProofBytes, '\0')) {
      throw SecretRefused(
          ErrorKind::kInvalidArgument,
          fmt::format("{}: it refused the job secret of this process; every rank needs the same, that of rank 0 or of "
                      "the launcher",
                      where()));
    }
    const Digest expected = wire::proof(options_.secret, "server", server_nonce, client_nonce);
    require(equal_in_constant_time(expected, wire::digest_of(answer)),
            "{}: what listens there does not know the job secret; is the address right?", where());
    return true;
  }

  TcpStoreOptions options_;
  std::mutex mutex_;
  std::vector<Socket> idle_;
};

}  // namespace

std::shared_ptr<Store> tcp_store(const TcpStoreOptions& options) {
  return std::make_shared<TcpStore>(options);
}

}  // namespace trireme::comm

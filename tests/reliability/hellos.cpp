#include "tests/reliability/hellos.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/comm/stores/tcp_store_wire.h"
#include "trireme/launch/cluster/raw_stream_for_tests.h"

namespace trireme::cli {
namespace {

namespace wire = comm::wire;

constexpr size_t kMostOpen = 48;  // connections that one thrower leaves open
constexpr size_t kMostSlow = 8;   // and of those it feeds byte by byte
constexpr size_t kOversize = 65'536;
constexpr std::string_view kSchedulerMagic = "trsched1";

// -1 when the connection is refused. Closing it leaves nothing behind: millions would use up the ports.
int connect_to(uint16_t port, long wait_us = 200'000) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  const timeval wait{.tv_sec = 0, .tv_usec = wait_us};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

// What has come when so many bytes have, or the time is over, or the other end has closed.
std::string receive(int fd, size_t bytes) {
  std::string out(bytes, '\0');
  size_t got = 0;
  while (got < bytes) {
    const ssize_t n = ::recv(fd, out.data() + got, bytes - got, 0);
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  out.resize(got);
  return out;
}

void transmit(int fd, std::string_view bytes) {
  (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::string text_of(const comm::Digest& digest) {
  return wire::bytes_of(digest);
}

}  // namespace

Target target_at(uint16_t port, uint16_t scheduler) {
  if (port == scheduler) return {port, Listener::kScheduler};
  const int fd = connect_to(port, 500'000);
  const bool is_store = receive(fd, wire::kHelloBytes).starts_with(wire::kStoreMagic);
  ::close(fd);
  return {port, is_store ? Listener::kStore : Listener::kOther};
}

HelloCounts& HelloCounts::operator+=(const HelloCounts& other) {
  for (size_t i = 0; i < thrown.size(); ++i) thrown[i] += other.thrown[i];
  accepted += other.accepted;
  not_connected += other.not_connected;
  return *this;
}

Thrower::Thrower(std::vector<Target> targets, const comm::Secret& secret, uint32_t seed)
    : targets_(std::move(targets)),
      secret_(secret),
      other_secret_(comm::random_secret()),
      random_(seed),
      old_nonce_(32, 'n') {}

Thrower::~Thrower() {
  for (const int fd : open_) ::close(fd);
  for (const int fd : slow_) ::close(fd);
}

void Thrower::run(int64_t hellos) {
  for (int64_t i = 0; i < hellos; ++i) {
    throw_one(targets_[random_() % targets_.size()], static_cast<Hello>(random_() % kHelloNames.size()));
    if (i % 64 == 0) feed_slow_ones();
  }
}

bool Thrower::is_let_in(const Target& target) {
  const auto right = static_cast<Hello>(kHelloNames.size());
  if (target.listener == Listener::kScheduler) return proves_to_scheduler(target.port, right);
  const int fd = connect_to(target.port, 5'000'000);
  const bool in = proves_to_store(fd, right);
  ::close(fd);
  return in;
}

void Thrower::throw_one(const Target& target, Hello hello) {
  ++counts_.thrown[static_cast<size_t>(hello)];
  const bool is_proof = hello == Hello::kReplayed || hello == Hello::kReflected || hello == Hello::kWrongSecret;
  if (is_proof && target.listener == Listener::kScheduler) {
    counts_.accepted += proves_to_scheduler(target.port, hello) ? 1 : 0;
    return;
  }
  const int fd = connect_to(target.port);
  if (fd < 0) {
    ++counts_.not_connected;
    return;
  }
  if (hello == Hello::kLeft) return keep(fd);
  if (hello == Hello::kSlow) {
    slow_.push_back(fd);
    return;
  }
  if (is_proof && target.listener == Listener::kStore) {
    counts_.accepted += proves_to_store(fd, hello) ? 1 : 0;
  } else {
    transmit(fd, bytes_of(hello));
    if (random_() % 8 == 0) receive(fd, 1);  // as a rule the connection is gone before an answer
  }
  ::close(fd);
}

std::string Thrower::random_bytes(size_t count) {
  std::string out(count, '\0');
  for (char& byte : out) byte = static_cast<char>(random_());
  return out;
}

std::string Thrower::bytes_of(Hello hello) {
  switch (hello) {
    case Hello::kTruncated:
      return random_bytes(random_() % wire::kAnswerBytes);
    case Hello::kOversized:
      return std::string(kOversize, static_cast<char>(random_()));
    case Hello::kTls: {  // the start of a ClientHello of TLS 1.2, then what may be anything
      const std::string body = random_bytes(200);
      return std::string("\x16\x03\x01\x00\xcc\x01\x00\x00\xc8\x03\x03", 11) + body;
    }
    case Hello::kHttp:
      return "POST /" + random_bytes(8) + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999999\r\n\r\n";
    case Hello::kHttp2: {  // preface, SETTINGS, and a frame of any kind that claims 16 KiB
      const std::string frame = random_bytes(6);
      return std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\x40\0", 36) + frame +
             random_bytes(random_() % 512);
    }
    default:
      return random_bytes(1 + random_() % 2048);
  }
}

// 32 bytes of this end's nonce, and 32 that prove nothing; or, for the check of the check, do.
std::string Thrower::answer(std::string_view nonce, Hello hello) {
  const std::string mine = random_bytes(32);
  switch (hello) {
    case Hello::kReplayed:
      return old_answer_.empty() ? mine + text_of(wire::proof(secret_, "client", old_nonce_, mine)) : old_answer_;
    case Hello::kReflected:
      return std::string(nonce) + std::string(nonce);
    case Hello::kWrongSecret:
      return mine + text_of(wire::proof(other_secret_, "client", nonce, mine));
    default:
      return mine + text_of(wire::proof(secret_, "client", nonce, mine));
  }
}

bool Thrower::proves_to_store(int fd, Hello hello) {
  const std::string greeting = receive(fd, wire::kHelloBytes);
  if (greeting.size() != wire::kHelloBytes) return false;
  const std::string nonce = greeting.substr(wire::kStoreMagic.size());
  const std::string mine = answer(nonce, hello);
  transmit(fd, mine);
  const std::string proof = receive(fd, wire::kProofBytes);
  const bool in = proof.size() == wire::kProofBytes && proof != std::string(wire::kProofBytes, '\0');
  if (in) old_answer_ = mine;
  return in;
}

bool Thrower::proves_to_scheduler(uint16_t port, Hello hello) {
  launch::RawStream stream(port);
  const auto challenge = stream.read();
  if (!challenge || !challenge->starts_with(kSchedulerMagic)) return false;
  const std::string nonce = challenge->substr(kSchedulerMagic.size());
  if (hello == static_cast<Hello>(kHelloNames.size())) {
    launch::ClientHandshake right(secret_);
    stream.write(*right.answer(*challenge));
  } else {
    stream.write(answer(nonce, hello));
  }
  return stream.read().has_value();
}

void Thrower::keep(int fd) {
  open_.push_back(fd);
  if (open_.size() <= kMostOpen) return;
  ::close(open_.front());
  open_.pop_front();
}

void Thrower::feed_slow_ones() {
  for (const int fd : slow_) transmit(fd, random_bytes(1));
  for (; slow_.size() > kMostSlow; slow_.pop_front()) ::close(slow_.front());
}

}  // namespace trireme::cli

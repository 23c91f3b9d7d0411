// Connections to the ports of a job by one who does not know its secret: malformed, unfinished, replayed, or of another
// protocol.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/stores/hmac.h"

namespace trireme::cli {

enum class Hello {
  kRandom,
  kTruncated,
  kOversized,
  kReplayed,
  kReflected,
  kWrongSecret,
  kTls,
  kHttp,
  kHttp2,
  kLeft,
  kSlow
};
inline constexpr std::array<const char*, 11> kHelloNames{"random bytes", "truncated",      "oversized",   "replayed",
                                                         "reflected",    "another secret", "TLS",         "HTTP",
                                                         "HTTP/2",       "left open",      "byte by byte"};

enum class Listener { kStore, kScheduler, kOther };

struct Target {
  uint16_t port = 0;
  Listener listener = Listener::kOther;
};

// What listens at a port of this host, by its greeting; `scheduler` is the scheduler's port.
Target target_at(uint16_t port, uint16_t scheduler);

struct HelloCounts {
  std::array<int64_t, kHelloNames.size()> thrown{};
  int64_t accepted = 0;       // proofs that the other end took
  int64_t not_connected = 0;  // the connection itself was refused
  HelloCounts& operator+=(const HelloCounts& other);
};

// One that throws. It knows the secret only to make the proofs of connections that are over, and one that is right.
class Thrower {
 public:
  Thrower(std::vector<Target> targets, const comm::Secret& secret, uint32_t seed);
  ~Thrower();
  Thrower(const Thrower&) = delete;
  Thrower& operator=(const Thrower&) = delete;

  void run(int64_t hellos);
  const HelloCounts& counts() const { return counts_; }
  // Whether a right proof is accepted there: a check of the check.
  bool is_let_in(const Target& target);

 private:
  void throw_one(const Target& target, Hello hello);
  std::string bytes_of(Hello hello);
  std::string random_bytes(size_t count);
  std::string answer(std::string_view nonce, Hello hello);
  bool proves_to_store(int fd, Hello hello);
  bool proves_to_scheduler(uint16_t port, Hello hello);
  void keep(int fd);
  void feed_slow_ones();

  std::vector<Target> targets_;
  comm::Secret secret_;
  comm::Secret other_secret_;
  std::mt19937 random_;
  std::string old_nonce_;  // of a connection that is over
  std::string old_answer_;
  std::deque<int> open_;
  std::deque<int> slow_;
  HelloCounts counts_;
};

}  // namespace trireme::cli

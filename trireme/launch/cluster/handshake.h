// The proof that both ends of a connection know the job's secret, and the seal on each message after it.
//
//   server: 8 bytes kMagic, 32 bytes server nonce
//   client: 32 bytes client nonce, 32 bytes HMAC(key, "client" + server nonce + client nonce)
//   server: 32 bytes HMAC(key, "server" + server nonce + client nonce)
// where key = HMAC(secret, kMethod): a proof made here is of no use at the job's store, nor one made there here.
// Then messages
//   32 bytes HMAC(session key, sender + sequence number + bytes), bytes
// where session key = HMAC(key, "session" + server nonce + client nonce). Both nonces are fresh, so a recorded
// connection cannot be played again; sender and sequence number are in the HMAC, so no message can be repeated, left
// out, reordered or sent back. Nothing is encrypted: that is what TLS is for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trireme/comm/stores/hmac.h"

namespace trireme::launch {

inline constexpr const char* kMethod = "/trireme.Scheduler/Attend";
inline constexpr const char* kAnotherSecret =
    "the job's secret was not proven";       // what a server says that refuses an answer
inline constexpr size_t kMaxUnproven = 256;  // bytes of a message before the proof

// The sequence numbers and the seal of one direction each way, after the handshake.
class Seals {
 public:
  enum class Side { kClient, kServer };
  Seals(const comm::Secret& session_key, Side side) : key_(session_key), side_(side) {}

  std::string seal(std::string_view bytes);
  // The bytes of the next message of the other side; nothing when it was not sealed by it as its next.
  std::optional<std::string_view> open(std::string_view message);

 private:
  comm::Digest digest(Side sender, uint64_t number, std::string_view bytes) const;

  comm::Secret key_;
  Side side_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

class ServerHandshake {
 public:
  explicit ServerHandshake(const comm::Secret& secret);
  std::string challenge() const;
  struct Outcome {
    std::string proof;
    Seals seals;
  };
  // Nothing when the answer does not prove that its sender knows the secret.
  std::optional<Outcome> check(std::string_view answer) const;

 private:
  comm::Secret key_;
  std::string nonce_;
};

class ClientHandshake {
 public:
  explicit ClientHandshake(const comm::Secret& secret);
  // Nothing when the challenge is none.
  std::optional<std::string> answer(std::string_view challenge);
  // Nothing when the server does not know the secret.
  std::optional<Seals> check(std::string_view proof) const;

 private:
  comm::Secret key_;
  std::string nonce_;
  std::string server_nonce_;
};

}  // namespace trireme::launch

#include "trireme/launch/cluster/handshake.h"

#include <algorithm>
#include <cstdint>

#include "trireme/comm/stores/tcp_store_wire.h"

namespace trireme::launch {
namespace {

constexpr std::string_view kMagic = "trsched1";
constexpr size_t kNonce = 32;
constexpr size_t kProof = 32;

std::string fresh_nonce() {
  const comm::Secret random = comm::random_secret();
  return {reinterpret_cast<const char*>(random.data()), random.size()};
}

comm::Secret key_of(const comm::Secret& secret) {
  return comm::hmac_sha256(secret, kMethod);
}

}  // namespace

comm::Digest Seals::digest(Side sender, uint64_t number, std::string_view bytes) const {
  std::string text = sender == Side::kClient ? "from client" : "from server";
  comm::wire::put(text, number, 8);
  text += bytes;
  return comm::hmac_sha256(key_, text);
}

std::string Seals::seal(std::string_view bytes) {
  return comm::wire::bytes_of(digest(side_, sent_++, bytes)).append(bytes);
}

std::optional<std::string_view> Seals::open(std::string_view message) {
  if (message.size() < kProof) return std::nullopt;
  const Side other = side_ == Side::kClient ? Side::kServer : Side::kClient;
  const std::string_view bytes = message.substr(kProof);
  const comm::Digest expected = digest(other, received_, bytes);
  if (!comm::equal_in_constant_time(expected, comm::wire::digest_of(message.substr(0, kProof)))) return std::nullopt;
  ++received_;
  return bytes;
}

ServerHandshake::ServerHandshake(const comm::Secret& secret) : key_(key_of(secret)), nonce_(fresh_nonce()) {}

std::string ServerHandshake::challenge() const {
  return std::string(kMagic) + nonce_;
}

std::optional<ServerHandshake::Outcome> ServerHandshake::check(std::string_view answer) const {
  if (answer.size() != kNonce + kProof) return std::nullopt;
  const std::string_view client_nonce = answer.substr(0, kNonce);
  const comm::Digest expected = comm::wire::proof(key_, "client", nonce_, client_nonce);
  if (!comm::equal_in_constant_time(expected, comm::wire::digest_of(answer.substr(kNonce)))) return std::nullopt;
  return Outcome{.proof = comm::wire::bytes_of(comm::wire::proof(key_, "server", nonce_, client_nonce)),
                 .seals = Seals(comm::wire::proof(key_, "session", nonce_, client_nonce), Seals::Side::kServer)};
}

ClientHandshake::ClientHandshake(const comm::Secret& secret) : key_(key_of(secret)), nonce_(fresh_nonce()) {}

std::optional<std::string> ClientHandshake::answer(std::string_view challenge) {
  if (challenge.size() != kMagic.size() + kNonce || !challenge.starts_with(kMagic)) return std::nullopt;
  server_nonce_ = challenge.substr(kMagic.size());
  return nonce_ + comm::wire::bytes_of(comm::wire::proof(key_, "client", server_nonce_, nonce_));
}

std::optional<Seals> ClientHandshake::check(std::string_view proof) const {
  if (proof.size() != kProof || server_nonce_.empty()) return std::nullopt;
  const comm::Digest expected = comm::wire::proof(key_, "server", server_nonce_, nonce_);
  if (!comm::equal_in_constant_time(expected, comm::wire::digest_of(proof))) return std::nullopt;
  return Seals(comm::wire::proof(key_, "session", server_nonce_, nonce_), Seals::Side::kClient);
}

}  // namespace trireme::launch

// The store of ranks that are processes: a server in the launcher, a client in every rank, over
// TCP.
//
// Whoever connects must prove by HMAC-SHA256 over both sides' nonces that it knows the job's
// secret, in 64 bytes and before a deadline; until then nothing else is read. The server proves the
// same to the client. The values themselves travel in the clear, so across hosts everyone who can read the network must
// be trusted.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/error.h"
#include "trireme/comm/store.h"
#include "trireme/comm/stores/hmac.h"

namespace trireme::comm {

struct TcpStoreServerOptions {
  std::string address = "127.0.0.1";  // numeric, of the interface to listen on
  uint16_t port = 0;                  // 0: a free one
  Secret secret{};
  std::chrono::milliseconds handshake_deadline{2000};
  size_t max_pending = 128;    // connections at once that have not proven the secret; one more ends the oldest
  size_t max_clients = 16384;  // proven connections at once
};

// Serves from a thread of its own until destroyed, which closes every connection.
class TcpStoreServer {
 public:
  explicit TcpStoreServer(const TcpStoreServerOptions& options);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  const std::string& address() const;
  uint16_t port() const;

  struct Counts {
    int64_t admitted = 0;  // handshakes that proved the secret
    int64_t refused = 0;   // that did not
    int64_t expired = 0;   // half-open connections ended by the deadline or by newer ones
    int64_t broken = 0;    // proven connections that sent an impossible request
  };
  Counts counts() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

struct TcpStoreOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;
  Secret secret{};
  std::chrono::milliseconds connect_deadline{30'000};  // the server may start later than the client
  // Instead of waiting for the server to start: one attempt, of at most this long. 0: wait.
  std::chrono::milliseconds single_attempt{0};
};

// The server does not accept the client's secret.
class SecretRefused : public Error {
 public:
  using Error::Error;
};

// Connects at once, so that a wrong address or secret shows here. Several threads may use the
// store: each call in flight has a connection of its own.
std::shared_ptr<Store> tcp_store(const TcpStoreOptions& options);

}  // namespace trireme::comm

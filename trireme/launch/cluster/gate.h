// The scheduler's listener. It accepts connections and hands them on to gRPC. gRPC itself limits neither the number of
// connections without a stream nor how long they stay, and its own listener never listens again once it has run out of
// descriptors.
//
// A connection is unproven until its peer has proven the job's secret. The number of these is limited: the oldest makes
// room once it has had a moment, and each is ended when its time is over. Descriptors that the rest of the process
// needs are left free. A listener that fails is made again. One thread does this; its cost does not grow with the
// proven connections.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "trireme/base/clock.h"

namespace trireme::launch {

struct GateOptions {
  std::string address = "127.0.0.1";  // numeric, of the interface to listen on
  uint16_t port = 0;                  // 0: a free one
  std::chrono::milliseconds prove_by{4000};
  size_t max_unproven = 128;
};

class Gate {
 public:
  using Take = std::function<void(int socket)>;  // owns it from then on

  // Listens from now on; kIo, with the system's reason, when it cannot.
  explicit Gate(const GateOptions& options);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  uint16_t port() const { return port_; }
  // Lets connections in from now on.
  void open(Take take);
  // Listens no more, and ends what is unproven.
  void close();
  // The connection from there, as gRPC names its peer, knows the secret.
  void prove(const std::string& peer);
  // Connections that were ended because they had not proven it in time, or for newer ones.
  int64_t ended() const { return ended_.load(); }

 private:
  struct Unproven {
    int socket = -1;  // a second descriptor of the connection: gRPC has closed its own when the peer has gone
    std::string peer;
    Deadline prove_by;
  };
  using Place = std::list<Unproven>::iterator;

  void run();
  void turn(std::chrono::milliseconds most);
  void let_in();
  bool let_one_in();
  void end_oldest();
  Place end(Place at);
  void listen_again();
  void pause(std::chrono::milliseconds how_long) { paused_ = Deadline(how_long); }
  void say_crowded();

  GateOptions options_;
  int listener_ = -1;
  uint16_t port_ = 0;
  int wake_ = -1;
  Take take_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> ended_{0};
  int64_t say_full_at_ = 1;
  int64_t times_full_ = 0;
  Deadline paused_{std::chrono::milliseconds(0)};
  std::mutex mutex_;              // of the list
  std::list<Unproven> unproven_;  // the oldest first
  std::thread thread_;
};

// What gRPC writes as a peer ("ipv4:10.0.0.1:80", "ipv6:%5B::1%5D:80"), as host and port.
std::string host_port_of_peer(const std::string& peer);

}  // namespace trireme::launch

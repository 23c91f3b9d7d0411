// HostMesh: a local socket between every two ranks of a host. Memory segments travel over it as
// file descriptors (memfd), so that no named object exists that another program could take or that
// could remain; and a socket that closes shows that a peer is gone.
//
// Why sockets rather than opening /proc/<pid>/fd/<n>: they work between PID namespaces and for
// processes that are not dumpable, the kernel vouches for the user at the other end, and they close
// when the peer dies.
#pragma once

#include <poll.h>

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/comm/comm.h"

namespace trireme::comm {

// A file descriptor that is closed once.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// A memory segment of this rank or of a peer, mapped here.
class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  Segment& operator=(Segment&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~Segment();
  static Fd make(size_t bytes);      // of zeros, of a size that nobody can change
  static Segment map(const Fd& fd);  // throws kComm when the size is not sealed
  std::span<std::byte> memory() const { return memory_; }

 private:
  std::span<std::byte> memory_;
};

class HostMesh {
 public:
  // Collective: addresses go through the store.
  explicit HostMesh(const WorldOptions& options);

  // Collective over `members` (world ranks): gives every member a segment of this rank and hands
  // theirs, in the order of the list, to `keep`. Returns when every member has kept all. `key`
  // tells exchanges apart.
  void exchange_segments(const std::vector<int>& members, uint64_t key, size_t bytes,
                         const std::function<void(std::vector<Segment>)>& keep);

  int pid(int peer) const { return peers_[static_cast<size_t>(peer)].pid; }
  // Appends the peers that are gone and were not reported before.
  void find_lost(std::vector<int>& lost);

 private:
  enum class MessageKind : uint32_t { kHello, kSegment, kMapped };
  struct Message {
    MessageKind kind = MessageKind::kHello;
    int32_t rank = 0;
    uint64_t key = 0;
    char token[32] = {};
  };
  struct Peer {
    Fd socket;
    Fd process;  // readable when it has ended, even if a child of it holds the socket
    int pid = 0;
    bool lost = false;
  };

  void connect_to(int peer, const std::string& address);
  void accept_all(const Fd& listener);
  void adopt(int peer, Fd socket);
  void send(int peer, const Message& message, int fd);
  Fd receive(int peer, MessageKind kind, uint64_t key);
  [[noreturn]] void fail_waiting(ErrorKind kind, std::string_view what) const;

  WorldOptions options_;
  std::string token_;  // what others must say to be let in
  std::vector<Peer> peers_;
  std::vector<pollfd> watched_;  // by find_lost
  struct Early {                 // a message of another exchange, met while waiting
    int peer;
    MessageKind kind;
    uint64_t key;
    Fd fd;
  };
  std::vector<Early> early_;
};

}  // namespace trireme::comm

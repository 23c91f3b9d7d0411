#include "trireme/comm/shm/shm_mesh.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/comm/engine/roster.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLook = 10;           // ms between looks at a deadline
constexpr int kHelloTime = 2000;    // ms that one who connects has to say who it is
constexpr size_t kTokenBytes = 16;  // 128 bits, twice as many hexadecimal digits

std::string random_hex() {
  unsigned char bytes[kTokenBytes];
  if (getrandom(bytes, sizeof(bytes), 0) != static_cast<ssize_t>(sizeof(bytes))) {
    fail(ErrorKind::kIo, "shm: the system gives no random bytes: {}", std::strerror(errno));
  }
  std::string out;
  for (const unsigned char byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

// An abstract address: it has no file, so none remains.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "trireme-" + name;
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size())};
}

ucred credentials_of(int socket) {
  ucred out{};
  socklen_t size = sizeof(out);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &out, &size) != 0) out.uid = ~uid_t{0};
  return out;
}

bool wait_readable(int fd, int ms) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, ms) > 0;
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Segment::~Segment() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

Fd Segment::make(size_t bytes) {
  Fd fd(memfd_create("trireme", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool ok = fd.get() >= 0 && ftruncate(fd.get(), static_cast<off_t>(std::max<size_t>(bytes, 1))) == 0 &&
                  fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  if (!ok) fail(ErrorKind::kIo, "shm: a segment of {} bytes cannot be made: {}", bytes, std::strerror(errno));
  return fd;
}

Segment Segment::map(const Fd& fd) {
  struct stat info {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (fstat(fd.get(), &info) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    fail(ErrorKind::kComm,
         "shm: a process that is not a rank of this build answered for one (its segment is not of sealed size)");
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  void* const start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (start == MAP_FAILED) {
    fail(ErrorKind::kIo, "shm: a segment of {} bytes cannot be mapped: {}", bytes, std::strerror(errno));
  }
  madvise(start, bytes,
          MADV_HUGEPAGE);  // refused where shared memory has no large pages, which is fine
  Segment out;
  out.memory_ = {static_cast<std::byte*>(start), bytes};
  return out;
}

HostMesh::HostMesh(const WorldOptions& options)
    : options_(options), token_(random_hex()), peers_(static_cast<size_t>(options.size)) {
  watched_.reserve(2 * peers_.size());
  const std::string name = random_hex();
  Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto [address, length] = address_of(name);
  if (listener.get() < 0 || bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener.get(), std::max(options.size, 16)) != 0) {
    fail(ErrorKind::kIo, "shm: no local socket can be opened: {}", std::strerror(errno));
  }
  const std::vector<std::string> addresses = exchange(options, "shm", name + token_);
  for (int peer = 0; peer < options.rank; ++peer) connect_to(peer, addresses[static_cast<size_t>(peer)]);
  accept_all(listener);
  peers_[static_cast<size_t>(options.rank)].pid = getpid();
}

void HostMesh::fail_waiting(ErrorKind kind, std::string_view what) const {
  fail(kind, "[rank {} of {}] shm (job {}): {}", options_.rank, options_.size, options_.job, what);
}

void HostMesh::connect_to(int peer, const std::string& address) {
  const size_t digits = 2 * kTokenBytes;
  if (address.size() != 2 * digits) fail_waiting(ErrorKind::kComm, "a peer's address is malformed");
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto [where, length] = address_of(address.substr(0, digits));
  if (fd.get() < 0 || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), length) != 0) {
    fail_waiting(ErrorKind::kComm, fmt::format("rank {} cannot be reached: {}", peer, std::strerror(errno)));
  }
  adopt(peer, std::move(fd));
  Message hello;
  hello.rank = options_.rank;
  std::memcpy(hello.token, address.data() + digits, digits);
  send(peer, hello, -1);
}

// Ranks above this one connect to it. One that does not say this rank's token is not of the job.
void HostMesh::accept_all(const Fd& listener) {
  const Clock::time_point end = Clock::now() + options_.join_deadline;
  for (int left = options_.size - 1 - options_.rank; left > 0;) {
    if (Clock::now() > end) fail_waiting(ErrorKind::kTimeout, fmt::format("{} ranks did not connect", left));
    if (!wait_readable(listener.get(), kLook)) continue;
    Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.get() < 0 || credentials_of(fd.get()).uid != geteuid()) continue;
    Message hello;
    if (!wait_readable(fd.get(), kHelloTime)) continue;
    const ssize_t got = recv(fd.get(), &hello, sizeof(hello), 0);
    const bool known = got == static_cast<ssize_t>(sizeof(hello)) && hello.kind == MessageKind::kHello &&
                       std::memcmp(hello.token, token_.data(), token_.size()) == 0 && hello.rank > options_.rank &&
                       hello.rank < options_.size && peers_[static_cast<size_t>(hello.rank)].socket.get() < 0;
    if (!known) continue;
    adopt(hello.rank, std::move(fd));
    --left;
  }
}

void HostMesh::adopt(int peer, Fd socket) {
  const ucred who = credentials_of(socket.get());
  if (who.uid != geteuid()) {
    fail_waiting(ErrorKind::kComm, fmt::format("rank {} runs as user {}, not {}", peer, who.uid, geteuid()));
  }
  Peer& entry = peers_[static_cast<size_t>(peer)];
  entry.socket = std::move(socket);
  entry.pid = who.pid;
  // A rank that is a thread of this process cannot end before it; another PID namespace shows pid
  // 0.
  if (who.pid > 0 && who.pid != getpid()) {
    entry.process = Fd(static_cast<int>(syscall(SYS_pidfd_open, who.pid, 0)));
  }
}

void HostMesh::send(int peer, const Message& message, int fd) {
  iovec data{const_cast<Message*>(&message), sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  }
  if (sendmsg(peers_[static_cast<size_t>(peer)].socket.get(), &header, MSG_NOSIGNAL) < 0) {
    fail_waiting(ErrorKind::kComm, fmt::format("rank {} (pid {}) is gone: {}", peer, pid(peer), std::strerror(errno)));
  }
}

Fd HostMesh::receive(int peer, MessageKind kind, uint64_t key) {
  const auto found = std::find_if(early_.begin(), early_.end(), [&](const Early& early) {
    return early.peer == peer && early.kind == kind && early.key == key;
  });
  if (found != early_.end()) {
    Fd fd = std::move(found->fd);
    early_.erase(found);
    return fd;
  }
  const Clock::time_point end = Clock::now() + options_.deadline;
  const int socket = peers_[static_cast<size_t>(peer)].socket.get();
  for (;;) {
    if (Clock::now() > end) {
      fail_waiting(ErrorKind::kTimeout, fmt::format("rank {} (pid {}) did not join the shared memory within {} ms",
                                                    peer, pid(peer), options_.deadline.count()));
    }
    if (!wait_readable(socket, kLook)) continue;
    Message message;
    iovec data{&message, sizeof(message)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    if (got != static_cast<ssize_t>(sizeof(message))) {
      fail_waiting(ErrorKind::kComm, fmt::format("rank {} (pid {}) is gone", peer, pid(peer)));
    }
    Fd fd;
    const cmsghdr* const part = CMSG_FIRSTHDR(&header);
    if (part != nullptr && part->cmsg_type == SCM_RIGHTS && part->cmsg_len == CMSG_LEN(sizeof(int))) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part), sizeof(number));
      fd = Fd(number);
    }
    if (message.kind == kind && message.key == key) return fd;
    early_.push_back({peer, message.kind, message.key, std::move(fd)});
  }
}

void HostMesh::exchange_segments(const std::vector<int>& members, uint64_t key, size_t bytes,
                                 const std::function<void(std::vector<Segment>)>& keep) {
  const Fd own = Segment::make(bytes);
  Message message{MessageKind::kSegment, options_.rank, key, {}};
  for (const int member : members) {
    if (member != options_.rank) send(member, message, own.get());
  }
  std::vector<Segment> segments;
  for (const int member : members) {
    segments.push_back(member == options_.rank ? Segment::map(own)
                                               : Segment::map(receive(member, MessageKind::kSegment, key)));
  }
  keep(std::move(segments));
  // A peer may speak of a segment only when all have it.
  message.kind = MessageKind::kMapped;
  for (const int member : members) {
    if (member != options_.rank) send(member, message, -1);
  }
  for (const int member : members) {
    if (member != options_.rank) receive(member, MessageKind::kMapped, key);
  }
}

void HostMesh::find_lost(std::vector<int>& lost) {
  watched_.clear();
  for (const Peer& peer : peers_) {
    watched_.push_back({peer.lost ? -1 : peer.socket.get(), 0, 0});
    watched_.push_back({peer.lost ? -1 : peer.process.get(), POLLIN, 0});
  }
  if (poll(watched_.data(), watched_.size(), 0) <= 0) return;
  for (size_t i = 0; i < peers_.size(); ++i) {
    const bool hung_up = (watched_[2 * i].revents & (POLLHUP | POLLERR)) != 0;
    if (!hung_up && watched_[2 * i + 1].revents == 0) continue;
    peers_[i].lost = true;
    lost.push_back(static_cast<int>(i));
  }
}

}  // namespace trireme::comm

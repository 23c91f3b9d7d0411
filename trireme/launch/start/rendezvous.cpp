#include "trireme/launch/start/rendezvous.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/hash.h"
#include "trireme/base/log.h"
#include "trireme/comm/stores/tcp_store.h"
#include "trireme/comm/transports/mpi_start.h"
#include "trireme/launch/start/host_address.h"
#include "trireme/launch/start/store_address.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;

constexpr int kPortTries = 8;
constexpr milliseconds kLook{20};
constexpr milliseconds kLookAgain{1000};
constexpr milliseconds kOneTry{2000};  // at a port that may be someone else's

// A folder that is this user's alone, so that nobody can put a file there before us.
std::string private_folder() {
  const std::string path = fmt::format("{}/trireme-{}", flag_text("TMPDIR").value_or("/tmp"), geteuid());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    fail(ErrorKind::kIo, "launch: cannot make the folder '{}' ({})", path, std::strerror(errno));
  }
  struct stat info {};
  const bool ok =
      lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
  require(ok,
          "launch: '{}' must be a folder of this user with mode 0700, as the ranks' secret goes there; "
          "remove it, or set TMPDIR to another place",
          path);
  return path;
}

// The file in which rank 0 leaves its address. It is locked while rank 0 lives, so one that a dead
// job left is known as such.
class StoreFile {
 public:
  StoreFile(std::string path, const StoreAddress& address) : path_(std::move(path)) {
    const std::string fresh = path_ + ".new";
    unlink(fresh.c_str());
    fd_ = open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const std::string text = to_string(address);
    const bool opened = fd_ >= 0;
    const bool locked = opened && flock(fd_, LOCK_EX | LOCK_NB) == 0;
    const bool ok = locked && write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                    rename(fresh.c_str(), path_.c_str()) == 0;
    if (!ok) {
      const int error = errno;
      if (opened) close(fd_);
      fail(ErrorKind::kIo, "launch: cannot {} '{}' ({}); set TMPDIR to a folder on a disk of this host",
           opened && !locked ? "lock" : "write", path_, std::strerror(error));
    }
  }
  ~StoreFile() {
    struct stat ours {};
    struct stat there {};
    fstat(fd_, &ours);
    if (stat(path_.c_str(), &there) == 0 && there.st_ino == ours.st_ino) unlink(path_.c_str());
    close(fd_);
  }
  StoreFile(const StoreFile&) = delete;
  StoreFile& operator=(const StoreFile&) = delete;

  // What a living rank 0 left there.
  static std::optional<StoreAddress> read(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return std::nullopt;
    const bool dead = flock(fd, LOCK_SH | LOCK_NB) == 0;
    char text[256];
    const ssize_t got = ::read(fd, text, sizeof text);
    close(fd);
    if (dead || got <= 0) return std::nullopt;
    return parse_store_address({text, static_cast<size_t>(got)});
  }

 private:
  std::string path_;
  int fd_ = -1;
};

// Rank 0's: a store together with its server.
class ServedStore final : public comm::Store {
 public:
  explicit ServedStore(std::unique_ptr<comm::TcpStoreServer> server, const comm::Secret& secret)
      : server_(std::move(server)),
        store_(comm::tcp_store({.address = server_->address(), .port = server_->port(), .secret = secret})) {}

  int64_t refused() const { return server_->counts().refused; }
  void leave_at(const std::string& path, const StoreAddress& address) {
    file_ = std::make_unique<StoreFile>(path, address);
  }

  void set(std::string_view key, std::string_view value) override { store_->set(key, value); }
  std::string get(std::string_view key, milliseconds deadline) override { return store_->get(key, deadline); }
  int64_t add(std::string_view key, int64_t amount) override { return store_->add(key, amount); }

 private:
  std::unique_ptr<comm::TcpStoreServer> server_;
  std::shared_ptr<comm::Store> store_;
  std::unique_ptr<StoreFile> file_;
};

Meeting meeting_at(const std::shared_ptr<ServedStore>& store, std::string place) {
  return {store, std::move(place), [store] { return store->refused(); }};
}

std::shared_ptr<ServedStore> serve(const StoreAddress& address) {
  auto server = std::make_unique<comm::TcpStoreServer>(
      comm::TcpStoreServerOptions{.address = address.host, .port = address.port, .secret = address.secret.value()});
  return std::make_shared<ServedStore>(std::move(server), *address.secret);
}

// `once`: whoever listens there may be someone else, so there is one attempt.
std::shared_ptr<comm::Store> reach(const StoreAddress& address, bool once) {
  return comm::tcp_store({.address = address.host,
                          .port = address.port,
                          .secret = address.secret.value(),
                          .single_attempt = once ? kOneTry : milliseconds(0)});
}

std::string own_address(const RankInfo& info) {
  if (info.one_host) return "127.0.0.1";
  if (!info.master_address.empty()) return address_for_others(info.master_address, "launch: MASTER_ADDR");
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return address_for_others(name, "launch: MASTER_ADDR is not set, and this host's name");
}

// Of ranks on several hosts: refuses none at all, unless the network is trusted with everything; of that rank 0 warns.
void require_secret(const RankInfo& info, bool insecure, std::string_view otherwise) {
  if (info.secret) return;
  require(insecure,
          "launch: {} says that ranks may be on several hosts, and none was given a secret, without "
          "which anyone in the network could join. Make one with 'trireme launch --make-secret "
          "FILE', copy the file to every host and set TRIREME_SECRET_FILE=FILE (or TRIREME_SECRET "
          "to its text) for every rank{}; in a network that you "
          "trust with everything, --insecure or TRIREME_INSECURE=1",
          info.evidence, otherwise);
  if (info.rank == 0) {
    TRIREME_LOG(kWarn, "launch", "--insecure: whoever reaches this host can join the job and read what it sends");
  }
}

// What MPI carries can be read in the network, so the secret goes by it on one host only.
Meeting meet_by_mpi(const RankInfo& info, bool insecure) {
  if (!info.one_host) require_secret(info, insecure, " ('mpirun -x TRIREME_SECRET_FILE' passes it on)");
  const bool carried = info.one_host || !info.secret;
  if (info.rank == 0) {
    const comm::Secret secret = info.secret.value_or(comm::random_secret());
    StoreAddress address{.host = own_address(info), .secret = {}};
    if (carried) address.secret = secret;
    auto server =
        std::make_unique<comm::TcpStoreServer>(comm::TcpStoreServerOptions{.address = address.host, .secret = secret});
    address.port = server->port();
    (void)comm::from_rank_0_by_mpi(to_string(address));
    return meeting_at(std::make_shared<ServedStore>(std::move(server), secret),
                      fmt::format("the others at its store {}:{}, told by MPI", address.host, address.port));
  }
  auto address = parse_store_address(comm::from_rank_0_by_mpi(""));
  require(address.has_value(),
          "launch: what MPI brought from rank 0 is not an address; do all ranks run the same build?");
  require(address->secret.has_value() || info.secret.has_value(),
          "job secret: rank 0 has a secret and this rank has none; give all ranks the same");
  require(!info.secret || !address->secret || *info.secret == *address->secret,
          "job secret: this rank has a different secret from rank 0's; give all ranks the same");
  if (!address->secret) address->secret = info.secret;
  return {reach(*address, false), fmt::format("rank 0 at its store {}:{}, told by MPI", address->host, address->port),
          nullptr};
}

Meeting meet_by_file(const RankInfo& info, milliseconds deadline) {
  // Without a name, jobs of one terminal are taken for one another's; then rank 0 says so.
  const std::string job = info.job.empty() ? fmt::format("session {}", getsid(0)) : info.job;
  const std::string key = sha256_hex(fmt::format("{}\n{}\n{}", info.started_by, job, info.world));
  const std::string path = fmt::format("{}/{}", private_folder(), key.substr(0, 32));
  if (info.rank == 0) {
    require(!StoreFile::read(path),
            "launch: rank 0 of a job with the same name ({} '{}') runs on this host; give this "
            "one another MASTER_PORT, or wait until that one has ended",
            info.started_by, job);
    StoreAddress address{.host = "127.0.0.1", .secret = info.secret.value_or(comm::random_secret())};
    auto server = std::make_unique<comm::TcpStoreServer>(comm::TcpStoreServerOptions{.secret = *address.secret});
    address.port = server->port();
    auto store = std::make_shared<ServedStore>(std::move(server), *address.secret);
    store->leave_at(path, address);
    return meeting_at(store, fmt::format("the others by the file {}", path));
  }
  for (const Deadline end(deadline); !end.passed(); std::this_thread::sleep_for(kLook)) {
    const auto address = StoreFile::read(path);
    if (!address || !address->secret) continue;
    require(!info.secret || *info.secret == *address->secret,
            "job secret: this rank has a different secret from rank 0's; give all ranks the same");
    return {reach(*address, false), fmt::format("rank 0 by the file {}", path), nullptr};
  }
  fail(ErrorKind::kTimeout,
       "[rank {} of {}] launch: rank 0 did not start on this host within {} (no file {}); start "
       "all {} ranks",
       info.rank, info.world, duration_text(static_cast<double>(deadline.count()) / 1000), path, info.world);
}

comm::Secret secret_across_hosts(const RankInfo& info, bool insecure) {
  require_secret(info, insecure, fmt::format("; on one host set LOCAL_WORLD_SIZE={}", info.world));
  return info.secret.value_or(comm::sha256(fmt::format("insecure {}", info.job)));
}

Meeting meet_across_hosts(const RankInfo& info, bool insecure, milliseconds deadline) {
  require(!info.master_address.empty() && info.master_port != 0,
          "launch: {} says that ranks may be on several hosts, but nothing tells where rank 0 is; "
          "set MASTER_ADDR and "
          "MASTER_PORT, the same for every rank",
          info.evidence);
  StoreAddress address{.host = info.master_address, .secret = secret_across_hosts(info, insecure)};
  const int last = std::min(info.master_port + kPortTries - 1, 65'535);
  const std::string range = fmt::format("{}, port {} to {}", info.master_address, info.master_port, last);
  std::string trouble;
  if (info.rank == 0) {
    address.host = own_address(info);
    for (int port = info.master_port; port <= last; ++port) {
      address.port = static_cast<uint16_t>(port);
      try {
        return meeting_at(serve(address), fmt::format("the others at its store {}:{}", address.host, port));
      } catch (const Error& e) {
        trouble = e.text();
      }
    }
    fail(ErrorKind::kIo, "launch: rank 0 cannot listen at {}: {}; MASTER_ADDR must be an address of its host", range,
         trouble);
  }
  int refused_at = 0;  // a store that does not accept the secret: rank 0's, or another job's
  milliseconds pause = kLook;
  for (const Deadline end(deadline); !end.passed(); std::this_thread::sleep_for(pause)) {
    for (int port = info.master_port; port <= last; ++port) {
      address.port = static_cast<uint16_t>(port);
      try {
        return {reach(address, true), fmt::format("rank 0 at its store {}:{}", address.host, port), nullptr};
      } catch (const comm::SecretRefused& e) {
        if (refused_at == 0) {
          TRIREME_LOG(kWarn, "launch", "{}; in case that is another job's store, this rank still waits for rank 0",
                      e.text());
        }
        refused_at = port;
        pause = std::min(2 * pause, kLookAgain);  // whoever it is, it logs what it refuses
      } catch (const Error& e) {
        if (trouble.empty() || e.kind() == ErrorKind::kInvalidArgument) trouble = e.text();
      }
    }
  }
  require(refused_at == 0,
          "[rank {} of {}] launch: the store at {}:{} does not accept the job secret of this rank; it is different "
          "from rank 0's, or rank 0 did not come within {} and that is another job's store. Give all ranks the same "
          "TRIREME_SECRET_FILE (or "
          "TRIREME_SECRET)",
          info.rank, info.world, info.master_address, refused_at,
          duration_text(static_cast<double>(deadline.count()) / 1000));
  fail(ErrorKind::kTimeout, "[rank {} of {}] launch: rank 0 was not found at {} within {} ({})", info.rank, info.world,
       range, duration_text(static_cast<double>(deadline.count()) / 1000), trouble);
}

}  // namespace

Meeting meet(const RankInfo& info, bool insecure, milliseconds deadline) {
  if (info.served) {
    const StoreAddress address{.host = info.master_address, .port = info.master_port, .secret = *info.secret};
    return {reach(address, false), fmt::format("the others at the launcher's store {}:{}", address.host, address.port),
            nullptr};
  }
  if (info.started_by == "mpirun" && comm::has_mpi()) return meet_by_mpi(info, insecure);
  if (info.one_host) return meet_by_file(info, deadline);
  return meet_across_hosts(info, insecure, deadline);
}

}  // namespace trireme::launch

#include "trireme/comm/engine/roster.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kClaimDeadline{2000};  // to learn who has a rank
constexpr size_t kListPart = 512 << 10;                    // bytes of a published list in one value of the store
constexpr size_t kDigits = 8;                              // of a length
constexpr char kComplete = '+';
constexpr char kMissing = '!';

std::string key_of(const WorldOptions& options, std::string_view name, std::string_view part) {
  return fmt::format("{}/{}/{}", options.job, name, part);
}

[[noreturn]] void fail_missing(const WorldOptions& options, std::string_view who) {
  fail(ErrorKind::kTimeout, "[rank {} of {}] connect (job {}): {} did not join within {:.1f} s; start all {} ranks",
       options.rank, options.size, options.job, who, std::chrono::duration<double>(options.join_deadline).count(),
       options.size);
}

// Each value is preceded by its length.
std::string collect(const WorldOptions& options, std::string_view name) {
  const Clock::time_point end = Clock::now() + options.join_deadline;
  std::string list;
  std::string missing;
  for (int rank = 0; rank < options.size; ++rank) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    try {
      const std::string value =
          options.store->get(key_of(options, name, std::to_string(rank)), std::max(left, std::chrono::milliseconds(1)));
      list += fmt::format("{:08x}", value.size()) + value;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kTimeout) throw;
      missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
  }
  if (missing.empty()) return list;
  options.store->set(key_of(options, name, "all/0"), kMissing + missing);
  fail_missing(options, missing);
}

void publish(const WorldOptions& options, std::string_view name, const std::string& list) {
  const size_t parts = std::max<size_t>(1, (list.size() + kListPart - 1) / kListPart);
  for (size_t part = parts; part-- > 0;) {  // the first is set last: it shows that the others are set
    std::string value = list.substr(part * kListPart, kListPart);
    if (part == 0) value = fmt::format("{}{:08x}", kComplete, parts) + value;
    options.store->set(key_of(options, name, fmt::format("all/{}", part)), value);
  }
}

// Eight hexadecimal digits, in lower case as they are written.
size_t read_hex(std::string_view text, size_t at) {
  size_t value = 0;
  const std::string_view digits = text.substr(std::min(at, text.size()), kDigits);
  const auto [stop, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() != kDigits || status != std::errc() || stop != digits.data() + digits.size()) {
    fail(ErrorKind::kComm, "roster: a list of {} bytes has no length at byte {}; do all ranks run the same build?",
         text.size(), at);
  }
  return value;
}

std::string fetch(const WorldOptions& options, std::string_view name) {
  std::string list;
  try {
    list = options.store->get(key_of(options, name, "all/0"), options.join_deadline);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kTimeout) throw;
    fail_missing(options, "rank 0 or another");
  }
  if (list.starts_with(kMissing)) fail_missing(options, list.substr(1));
  const size_t parts = read_hex(list, 1);
  list.erase(0, 9);
  for (size_t part = 1; part < parts; ++part) {
    list += options.store->get(key_of(options, name, fmt::format("all/{}", part)), options.join_deadline);
  }
  return list;
}

// Ranks of one boot, one user and one network namespace can pass each other memory over a local
// socket.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat net {};
  stat("/proc/self/ns/net", &net);
  return fmt::format("{}-{}-{}-{}", boot, net.st_dev, net.st_ino, geteuid());
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

bool can_make_segments() {
  const int fd = memfd_create("trireme", MFD_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

}  // namespace

std::vector<std::string> decode_list(std::string_view list) {
  std::vector<std::string> values;
  for (size_t at = 0; at < list.size();) {
    const size_t length = read_hex(list, at);
    at += kDigits;
    if (length > list.size() - at) {
      fail(ErrorKind::kComm,
           "roster: a list of {} bytes has a value of {} at byte {}; do all ranks run the same build?", list.size(),
           length, at);
    }
    values.emplace_back(list.substr(at, length));
    at += length;
  }
  return values;
}

std::vector<std::string> exchange(const WorldOptions& options, std::string_view name, std::string_view value) {
  options.store->set(key_of(options, name, std::to_string(options.rank)), value);
  std::string list;
  if (options.rank == 0) {
    list = collect(options, name);
    publish(options, name, list);
  } else {
    list = fetch(options, name);
  }
  const std::vector<std::string> values = decode_list(list);
  invariant(static_cast<int>(values.size()) == options.size, "roster: {} values for {} ranks", values.size(),
            options.size);
  return values;
}

void claim_rank(const WorldOptions& options) {
  const std::string key = key_of(options, "claims", std::to_string(options.rank));
  if (options.store->add(key, 1) == 1) {
    options.store->set(key + "/by", fmt::format("process {} on {}", getpid(), host_name()));
    return;
  }
  std::string other = "another process";
  try {
    other = options.store->get(key + "/by", std::min(options.join_deadline, kClaimDeadline));
  } catch (const Error& e) {  // it ended at once
    if (e.kind() != ErrorKind::kTimeout) throw;
  }
  fail(ErrorKind::kInvalidArgument,
       "[rank {} of {}] connect (job {}): {} has already joined as rank {}; start each rank once, with a number of its "
       "own",
       options.rank, options.size, options.job, other, options.rank);
}

// The first to come takes the next number and leaves it for the others.
int agree_on_channel(const WorldOptions& options, const std::vector<int>& world_ranks, int number) {
  std::string list;
  for (const int rank : world_ranks) list += std::to_string(rank) + ",";
  list += "/" + std::to_string(number);
  const std::string digest = sha256_hex(list);  // lists may be longer than a key
  const std::string key = key_of(options, "groups", digest);
  if (options.store->add(key + "/members", 1) > 1) {
    return std::stoi(options.store->get(key, options.deadline));
  }
  const int64_t channel = options.store->add(key_of(options, "groups", "count"), 1);
  options.store->set(key, std::to_string(channel));
  return static_cast<int>(channel);
}

// A rank's value is three lines: what tells its host from others, the host's name, its log.
Neighbours count_neighbours(const WorldOptions& options) {
  const std::string own = (options.host.empty() ? host_identity() : options.host) + (can_make_segments() ? "+" : "-");
  Neighbours out{.on_host = 0};
  std::map<std::string, int, std::less<>> first_on;
  for (const std::string& value :
       exchange(options, "hosts", fmt::format("{}\n{}\n{}", own, host_name(), options.log))) {
    const size_t first = std::min(value.find('\n'), value.size());
    const size_t second = std::min(value.find('\n', first + 1), value.size());
    const std::string_view host = std::string_view(value).substr(0, first);
    if (host == own) ++out.on_host;
    out.hosts.push_back(first_on.emplace(host, static_cast<int>(out.hosts.size())).first->second);
    const size_t begin = std::min(first + 1, value.size());
    out.peers.push_back({value.substr(begin, second - begin), value.substr(std::min(second + 1, value.size()))});
  }
  out.can_share = out.on_host == options.size && own.back() == '+';
  return out;
}

}  // namespace trireme::comm

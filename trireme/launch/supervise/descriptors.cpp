#include "trireme/launch/supervise/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

// A launcher has a pipe, a page of memory, a process descriptor and two connections of its store for each rank; a rank
// has a socket and a process descriptor for each other one. The rest is for files, libraries and the scheduler's
// connection.
constexpr rlim_t kDescriptorsOfRank = 5;
constexpr rlim_t kOther = 64;

}  // namespace

void make_room_for_descriptors(int ranks) {
  const rlim_t needed = kOther + kDescriptorsOfRank * static_cast<rlim_t>(ranks);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  const bool enough = setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= needed;
  require(enough,
          "launch: {} rank{} on this host need{} {} open files and sockets in a process, but the limit is {} "
          "(RLIMIT_NOFILE); raise "
          "it with 'ulimit -Hn {}', or start fewer ranks here",
          ranks, ranks == 1 ? "" : "s", ranks == 1 ? "s" : "", needed, limit.rlim_max, needed);
}

void raise_descriptor_limit(size_t more) {
  rlimit limit{};
  const rlim_t needed = kOther + more;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace trireme::launch

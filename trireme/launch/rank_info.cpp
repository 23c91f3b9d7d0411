#include "trireme/launch/rank_info.h"

#include <unistd.h>

#include <cerrno>

#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/comm/tcp_store.h"
#include "trireme/launch/failure.h"
#include "trireme/launch/secret.h"

namespace trireme::launch {

namespace {

constexpr int64_t kMaxWorld = 65'536;

struct Place {
  int rank = 0;
  int world = 1;
};

// Rank and world from a pair of variables that only make sense together.
std::optional<Place> place_from(std::string_view rank_name, std::string_view world_name) {
  const auto rank = flag_int(rank_name, 0, kMaxWorld - 1);
  const auto world = flag_int(world_name, 1, kMaxWorld);
  if (!rank && !world) return std::nullopt;
  require(rank.has_value() == world.has_value(),
          "environment: {} is set ({}) but {} is not; a rank of a job needs both",
          rank ? rank_name : world_name, rank ? *rank : *world, rank ? world_name : rank_name);
  require(*rank < *world, "environment: {}={} but {}={}; ranks go from 0 to {}", rank_name, *rank,
          world_name, *world, *world - 1);
  return Place{static_cast<int>(*rank), static_cast<int>(*world)};
}

void find_store(RankInfo& info) {
  const auto address = flag_text("MASTER_ADDR");
  const auto port = flag_int("MASTER_PORT", 1, 65'535);
  const auto secret = flag_text("TRIREME_SECRET_FILE");
  require(address.has_value() && port.has_value(),
          "environment: WORLD_SIZE={} but {} is not set; ranks meet at the store at "
          "MASTER_ADDR:MASTER_PORT, which 'trireme launch' provides",
          info.world, address ? "MASTER_PORT" : "MASTER_ADDR");
  require(secret.has_value(),
          "environment: WORLD_SIZE={} but TRIREME_SECRET_FILE is not set; start the ranks with "
          "'trireme launch', which gives them the job's secret",
          info.world);
  info.master_address = *address;
  info.master_port = static_cast<uint16_t>(*port);
  info.secret = read_secret(*secret, "TRIREME_SECRET_FILE");
}

void find_local(RankInfo& info, std::string_view rank_name, std::string_view world_name) {
  info.local_world = static_cast<int>(flag_int(world_name, 1, info.world).value_or(info.world));
  info.local_rank = static_cast<int>(
      flag_int(rank_name, 0, kMaxWorld - 1).value_or(info.rank % info.local_world));
  require(info.local_rank < info.local_world,
          "environment: {}={} but {}={}; local ranks go from 0 to {}", rank_name, info.local_rank,
          world_name, info.local_world, info.local_world - 1);
}

}  // namespace

RankInfo find_rank() {
  RankInfo info;
  const auto own = place_from("RANK", "WORLD_SIZE");
  const auto mpi = place_from("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (own && mpi) {
    require(own->rank == mpi->rank && own->world == mpi->world,
            "environment: RANK={} of WORLD_SIZE={} but OMPI_COMM_WORLD_RANK={} of "
            "OMPI_COMM_WORLD_SIZE={}; unset one pair",
            own->rank, own->world, mpi->rank, mpi->world);
  }
  if (mpi) {
    info.rank = mpi->rank;
    info.world = mpi->world;
    info.started_by = "mpirun";
    find_local(info, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  } else if (own) {
    info.rank = own->rank;
    info.world = own->world;
    info.started_by = "a launcher";
    find_local(info, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    if (info.world > 1) find_store(info);
  }
  TRIREME_LOG(kDebug, "launch", "started by {}  rank={} world={} local_rank={}", info.started_by,
              info.rank, info.world, info.local_rank);
  return info;
}

bool report_failure(const Error& error) {
  const auto fd = flag_int("TRIREME_ERROR_FD", 3, 1'000'000);
  if (!fd) return false;
  const std::string message = encode(Failure{.kind = error.kind(), .text = error.what()});
  std::string_view rest = message;
  while (!rest.empty()) {
    const ssize_t n = write(static_cast<int>(*fd), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    rest.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::unique_ptr<comm::World> join(const RankInfo& info, const std::string& transport) {
  comm::WorldOptions options;
  options.rank = info.rank;
  options.size = info.world;
  options.transport = transport == "auto" && info.started_by == "mpirun" ? "mpi" : transport;
  if (info.secret) {
    options.store = comm::tcp_store(
        {.address = info.master_address, .port = info.master_port, .secret = *info.secret});
  }
  return comm::connect(options);
}

}  // namespace trireme::launch

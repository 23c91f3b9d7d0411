#include "trireme/launch/start/start.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/hash.h"
#include "trireme/launch/start/rank_table.h"
#include "trireme/launch/start/slurm.h"

namespace trireme::launch {
namespace {

using Names = std::vector<std::string_view>;

constexpr int kMaxWorld = 65'536;
constexpr int kFirstPort = 15'000;  // of those derived from a job's name; below the ones the kernel
constexpr int kPorts = 15'000;      // gives to connections

std::optional<std::string> text_of(const Environment& env, std::string_view name) {
  const auto at = env.find(name);
  return at == env.end() ? std::nullopt : std::optional(at->second);
}

std::optional<int> number_of(const Environment& env, std::string_view name, int low, int high) {
  const auto text = text_of(env, name);
  if (!text) return std::nullopt;
  return static_cast<int>(flag_number(name, *text, low, high));
}

bool has(const Environment& env, std::string_view name) {
  return env.find(name) != env.end();
}

uint16_t port_from(std::string_view job) {
  return static_cast<uint16_t>(kFirstPort + std::stoul(sha256_hex(job).substr(0, 6), nullptr, 16) % kPorts);
}

// What each launcher adds to rank and world.

void own_details(const Environment&, const ReadText&, RankInfo& info) {
  info.served = true;
}

void torchrun_details(const Environment& env, const ReadText&, RankInfo& info) {
  if (text_of(env, "TORCHELASTIC_USE_AGENT_STORE") == "True" && info.master_port < 65'535) {
    ++info.master_port;
  }
  info.job =
      fmt::format("{} {} {}:{}", text_of(env, "TORCHELASTIC_RUN_ID").value_or("-"),
                  text_of(env, "TORCHELASTIC_RESTART_COUNT").value_or("0"), info.master_address, info.master_port);
}

void mpirun_details(const Environment& env, const ReadText&, RankInfo& info) {
  info.job = text_of(env, "PMIX_NAMESPACE").value_or("");
}

void srun_details(const Environment& env, const ReadText&, RankInfo& info) {
  const HostList hosts(*text_of(env, "SLURM_STEP_NODELIST"));
  info.one_host = hosts.size() == 1;
  if (const auto list = text_of(env, "SLURM_STEP_TASKS_PER_NODE")) {
    const std::vector<int> tasks = expand_tasks(*list);
    const int node = number_of(env, "SLURM_NODEID", 0, kMaxWorld - 1).value_or(0);
    require(node < static_cast<int>(tasks.size()),
            "environment: SLURM_NODEID={} but SLURM_STEP_TASKS_PER_NODE={} has {} hosts", node, *list, tasks.size());
    info.local_world = tasks[static_cast<size_t>(node)];
  }
  info.job =
      fmt::format("{}.{}", text_of(env, "SLURM_JOB_ID").value_or("-"), text_of(env, "SLURM_STEP_ID").value_or("-"));
  if (info.master_address.empty()) info.master_address = hosts[0];
  if (info.master_port == 0) info.master_port = port_from(info.job);
}

std::string text_of_table(const std::string& path, const ReadText& read) {
  try {
    return read(path);
  } catch (const Error& e) {
    fail(ErrorKind::kNotFound, "environment: RANK_TABLE_FILE={}: {}", path, e.text());
  }
}

void table_details(const Environment& env, const ReadText& read, RankInfo& info) {
  const std::string path = *text_of(env, "RANK_TABLE_FILE");
  const std::string text = text_of_table(path, read);
  const RankTable table = parse_rank_table(text, fmt::format("rank table '{}'", path));
  info.world = static_cast<int>(table.ranks.size());
  require(info.rank < info.world, "environment: RANK_ID={} but the rank table '{}' has ranks 0 to {}", info.rank, path,
          info.world - 1);
  const RankTable::Entry& own = table.ranks[static_cast<size_t>(info.rank)];
  const auto device = number_of(env, "DEVICE_ID", 0, kMaxWorld - 1);
  require(!device || *device == own.device, "environment: DEVICE_ID={} but the rank table '{}' gives rank {} device {}",
          device.value_or(0), path, info.rank, own.device);
  info.evidence = fmt::format("RANK_ID={} of {} in RANK_TABLE_FILE={}", info.rank, info.world, path);
  info.local_rank = own.local_rank;
  info.local_world = own.local_world;
  info.one_host = table.servers == 1;
  info.master_address = table.ranks[0].server;
  info.job = sha256_hex(text);
  if (info.master_port == 0) info.master_port = port_from(info.job);
}

void pod_details(const Environment&, const ReadText&, RankInfo& info) {
  info.local_rank = 0;
  info.local_world = 1;
  info.job = fmt::format("{}:{}", info.master_address, info.master_port);
}

// A launcher, and the variables of its ranks.
struct Launcher {
  std::string_view name;
  Names marks;  // all set by this launcher only; a row counts when they are
  std::string_view rank;
  std::string_view world;  // empty: `details` knows
  std::string_view local_rank;
  std::string_view local_world;
  bool encloses = false;       // may hand out processes for other launchers to start ranks in
  bool needs_address = false;  // and a port, as it knows of no host
  void (*details)(const Environment&, const ReadText&, RankInfo&);
};

// In the order in which they are looked for.
const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> rows{
      {.name = "trireme launch",
       .marks = {"TRIREME_ERROR_FD", "RANK"},
       .rank = "RANK",
       .world = "WORLD_SIZE",
       .local_rank = "LOCAL_RANK",
       .local_world = "LOCAL_WORLD_SIZE",
       .needs_address = true,
       .details = own_details},
      {.name = "torchrun",
       .marks = {"RANK"},
       .rank = "RANK",
       .world = "WORLD_SIZE",
       .local_rank = "LOCAL_RANK",
       .local_world = "LOCAL_WORLD_SIZE",
       .needs_address = true,
       .details = torchrun_details},
      {.name = "mpirun",
       .marks = {"OMPI_COMM_WORLD_RANK"},
       .rank = "OMPI_COMM_WORLD_RANK",
       .world = "OMPI_COMM_WORLD_SIZE",
       .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
       .local_world = "OMPI_COMM_WORLD_LOCAL_SIZE",
       .details = mpirun_details},
      {.name = "mpirun (MPICH or Intel MPI)",
       .marks = {"PMI_RANK"},
       .rank = "PMI_RANK",
       .world = "PMI_SIZE",
       .local_rank = "MPI_LOCALRANKID",
       .local_world = "MPI_LOCALNRANKS",
       .details = [](const Environment&, const ReadText&, RankInfo&) {}},
      // Without the list of a step it is the script of sbatch, which runs once.
      {.name = "srun",
       .marks = {"SLURM_PROCID", "SLURM_STEP_NODELIST"},
       .rank = "SLURM_PROCID",
       .world = "SLURM_STEP_NUM_TASKS",
       .local_rank = "SLURM_LOCALID",
       .encloses = true,
       .details = srun_details},
      {.name = "a rank table", .marks = {"RANK_TABLE_FILE"}, .rank = "RANK_ID", .world = "", .details = table_details},
      {.name = "Kubernetes",
       .marks = {"JOB_COMPLETION_INDEX"},
       .rank = "JOB_COMPLETION_INDEX",
       .world = "WORLD_SIZE",
       .encloses = true,
       .needs_address = true,
       .details = pod_details},
  };
  return rows;
}

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "localhost" || address == "::1";
}

void find_local(const Environment& env, const Launcher& row, RankInfo& info) {
  const auto local_world = row.local_world.empty() ? std::nullopt : number_of(env, row.local_world, 1, info.world);
  // Who is told a loopback address can only have peers on its own host.
  info.one_host = local_world == info.world || (row.needs_address && is_loopback(info.master_address));
  info.local_world = local_world.value_or(info.world);
  info.local_rank = row.local_rank.empty()
                        ? info.rank % info.local_world
                        : number_of(env, row.local_rank, 0, kMaxWorld - 1).value_or(info.rank % info.local_world);
}

void check_address(const Launcher& row, const RankInfo& info) {
  if (!row.needs_address || info.world == 1) return;
  require(!info.master_address.empty() && info.master_port != 0,
          "environment: {} but {} is not set; ranks meet at the store at MASTER_ADDR:MASTER_PORT, "
          "which 'trireme launch' and torchrun provide",
          info.evidence, info.master_address.empty() ? "MASTER_ADDR" : "MASTER_PORT");
}

// The process as this row describes it.
RankInfo described_by(const Launcher& row, const Environment& env, const ReadText& read) {
  RankInfo info;
  info.started_by = row.name;
  const auto rank = number_of(env, row.rank, 0, kMaxWorld - 1);
  require(rank.has_value(), "environment: {} is set ({}) but {} is not; a rank of a job needs both", row.marks[0],
          *text_of(env, row.marks[0]), row.rank);
  info.rank = *rank;
  info.master_address = text_of(env, "MASTER_ADDR").value_or("");
  info.master_port = static_cast<uint16_t>(number_of(env, "MASTER_PORT", 1, 65'535).value_or(0));
  if (!row.world.empty()) {
    const auto world = number_of(env, row.world, 1, kMaxWorld);
    require(world.has_value(),
            "environment: {} is set ({}) but {} is not; a rank of a job needs both, and a process "
            "that is to run alone neither",
            row.rank, *rank, row.world);
    info.world = *world;
    require(*rank < *world, "environment: {}={} but {}={}; ranks go from 0 to {}", row.rank, *rank, row.world, *world,
            *world - 1);
    info.evidence = fmt::format("{}={} of {}={}", row.rank, *rank, row.world, *world);
    find_local(env, row, info);
    check_address(row, info);
  }
  row.details(env, read, info);
  require(info.local_rank < info.local_world, "environment: {}={} but {}={}; local ranks go from 0 to {}",
          row.local_rank, info.local_rank, row.local_world.empty() ? "ranks on this host" : row.local_world,
          info.local_world, info.local_world - 1);
  return info;
}

bool is_there(const Launcher& row, const Environment& env) {
  return std::ranges::all_of(row.marks, [&](std::string_view name) { return has(env, name); });
}

// Whether `other` handed out the process in which `info`'s launcher started several ranks: then its
// numbers are those of the enclosing processes.
bool is_around(const Launcher& other, const RankInfo& info, const Environment& env) {
  if (!other.encloses) return false;
  if (has(env, "TORCHELASTIC_RUN_ID") && info.started_by == "torchrun") return true;
  const auto world = other.world.empty() ? std::nullopt : number_of(env, other.world, 1, kMaxWorld);
  return !world || info.world > *world;
}

void check_agreement(const RankInfo& info, const Launcher& other, const Environment& env, const ReadText& read) {
  if (is_around(other, info, env)) return;
  const RankInfo second = described_by(other, env, read);
  require(info.rank == second.rank && info.world == second.world,
          "environment: {} but {}; unset the variables of one of them", info.evidence, second.evidence);
}

void check_half_set(const Environment& env) {
  for (const auto& [rank, world] :
       {std::pair{"RANK", "WORLD_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}}) {
    require(has(env, rank) || !has(env, world), "environment: {} is set ({}) but {} is not; a rank of a job needs both",
            world, text_of(env, world).value_or(""), rank);
  }
  require(!has(env, "PMIX_RANK"),
          "environment: PMIX_RANK={} says that this process is one of several, but nothing says of "
          "how many; set RANK and WORLD_SIZE, or unset PMIX_RANK to run it alone",
          text_of(env, "PMIX_RANK").value_or(""));
  require(!has(env, "RANK_ID") || !has(env, "RANK_SIZE") || text_of(env, "RANK_SIZE") == "1",
          "environment: RANK_ID={} of RANK_SIZE={} but RANK_TABLE_FILE is not set, so nothing says "
          "where the others are",
          text_of(env, "RANK_ID").value_or(""), text_of(env, "RANK_SIZE").value_or(""));
}

// The launcher, other than one that hands out processes for others to use, that says which rank this is; null: none
// does.
const Launcher* launcher_of(const Environment& env) {
  const auto found =
      std::ranges::find_if(launchers(), [&](const Launcher& row) { return !row.encloses && is_there(row, env); });
  return found == launchers().end() ? nullptr : &*found;
}

}  // namespace

std::string dynamic_cluster_role(const Environment& env) {
  const std::string role = text_of(env, "MS_ROLE").value_or("");
  const auto ranks = number_of(env, "MS_WORKER_NUM", 1, kMaxWorld);
  const Launcher* const launcher = launcher_of(env);
  if (role.empty()) {
    const bool is_rank = std::ranges::any_of(launchers(), [&](const Launcher& row) { return is_there(row, env); });
    require(is_rank || ranks.value_or(1) == 1,
            "environment: MS_WORKER_NUM={} but MS_ROLE is not set; a process of the dynamic "
            "cluster needs both, and one that is to run alone, or to start ranks itself, neither",
            ranks.value_or(0));
    return "";
  }
  require(role == "MS_WORKER" || role == "MS_SCHED" || role == "MS_PSERVER",
          "environment variable MS_ROLE='{}': it must be MS_WORKER, MS_SCHED or MS_PSERVER", role);
  require(role != "MS_PSERVER",
          "environment variable MS_ROLE=MS_PSERVER: there are no parameter servers; set MS_WORKER or MS_SCHED");
  if (launcher != nullptr) {
    const std::string_view mark = launcher->marks.back();
    fail(ErrorKind::kInvalidArgument,
         "environment: MS_ROLE={} but {}={}, by which this is a rank that {} started; unset the variables of "
         "one of them",
         role, mark, *text_of(env, mark), launcher->name);
  }
  require(ranks.has_value(), "environment: MS_ROLE={} but MS_WORKER_NUM is not set; it says how many ranks the job has",
          role);
  const auto servers = number_of(env, "MS_SERVER_NUM", 0, kMaxWorld);
  require(servers.value_or(0) == 0, "environment variable MS_SERVER_NUM={}: there are no parameter servers; unset it",
          servers.value_or(0));
  return role;
}

RankInfo describe_start(const Environment& env, const ReadText& read) {
  if (const std::string role = dynamic_cluster_role(env); !role.empty()) {
    fail(ErrorKind::kUnsupported,
         "environment: MS_ROLE={} of MS_WORKER_NUM={}: this program does not find the scheduler by these variables; "
         "start it with "
         "'trireme launch -n 1 -- PROGRAM', which reads them (and is the scheduler where MS_ROLE=MS_SCHED), or set "
         "RANK, WORLD_SIZE, "
         "MASTER_ADDR and MASTER_PORT instead",
         role, *text_of(env, "MS_WORKER_NUM"));
  }
  std::optional<RankInfo> found;
  for (const Launcher& row : launchers()) {
    if (!is_there(row, env)) continue;
    if (!found) {
      found = described_by(row, env, read);
      if (found->served) return *found;  // whatever started the launcher itself
    } else {
      check_agreement(*found, row, env, read);
    }
  }
  if (!found) {
    check_half_set(env);
    return {};
  }
  const auto size = number_of(env, "RANK_SIZE", 1, kMaxWorld);
  require(!size || !has(env, "RANK_TABLE_FILE") || *size == found->world,
          "environment: {} but RANK_SIZE={}; unset one of them", found->evidence, size.value_or(0));
  const auto pmix = number_of(env, "PMIX_RANK", 0, kMaxWorld - 1);
  require(!pmix || *pmix == found->rank || has(env, "TORCHELASTIC_RUN_ID"),
          "environment: {} but PMIX_RANK={}; unset the variables of one of them", found->evidence, pmix.value_or(0));
  return *found;
}

std::vector<std::string> start_variables() {
  std::vector<std::string> out{"WORLD_SIZE", "PMIX_RANK", "RANK_ID", "MS_ROLE"};
  for (const Launcher& row : launchers()) {
    for (const std::string_view name : row.marks) {
      if (std::ranges::find(out, name) == out.end()) out.emplace_back(name);
    }
  }
  return out;
}

}  // namespace trireme::launch

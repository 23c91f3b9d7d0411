#include "trireme/base/flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "trireme/base/error.h"

extern char** environ;

namespace trireme {

namespace {

constexpr std::array kFlags{
    Flag{
        "TRIREME_LOG", "warn,plan=debug",
        "Log level for all components, then per component: error, warn, info or debug. Components are ckpt, cli, comm, "
        "dispatch, exec, launch, pass, plan and train. Default warn."},
    Flag{"TRIREME_THREADS", "1..1024",
         "Compute threads of each rank. Default: the machine's cores divided by the ranks on it."},
    Flag{"TRIREME_PIN", "0|1",
         "0: the system chooses which cores a rank runs on. Default 1: the launcher gives it cores of its own, where "
         "asked to (--bind-core)."},
    Flag{"TRIREME_ISA", "baseline|avx2|avx512|avx512_bf16|amx|native",
         "Best instruction set the CPU kernels may use. Default native: the machine's best."},
    Flag{"TRIREME_TRANSPORT", "auto|threads|shm|ucx|mpi",
         "How ranks exchange tensors. Default auto: the fastest that reaches every rank."},
    Flag{"UCX_RNDV_THRESH", "bytes",
         "UCX's own: the size from which a message waits for its receiver. Default between hosts without RDMA cards: "
         "none does."},
    Flag{"UCX_TCP_TX_SEG_SIZE", "bytes",
         "UCX's own: bytes that go into a socket in one call, at most UCX_TCP_RX_SEG_SIZE. Default here 64k."},
    Flag{"TRIREME_SECRET_FILE", "path",
         "File of mode 0600 with the job's secret, 64 hexadecimal digits. Set by the launcher."},
    Flag{"TRIREME_SECRET", "64 hexadecimal digits",
         "The job's secret itself, where it cannot be in a file on every host."},
    Flag{"TRIREME_TLS_PASSWORD", "text",
         "Password of an encrypted key in --tls-key or --tls-cert, where no --tls-password-file is given."},
    Flag{"TRIREME_INSECURE", "0|1",
         "1: ranks on several hosts may meet without a secret. It warns at every start. Default 0."},
    Flag{"TRIREME_START_TIMEOUT", "1..86400", "Seconds that a rank waits for the others to join. Default 300."},
    Flag{"TRIREME_ERROR_FD", "number", "Pipe on which a worker tells the launcher why it failed. Set by the launcher."},
    Flag{"TRIREME_PAGE_FD", "number",
         "Memory in which a worker tells the launcher what it waits for. Set by the launcher."},
    Flag{"TRIREME_WORKER_LOG", "path",
         "Where a worker's output goes; other ranks name it when this one is gone. Set by the launcher."},
    Flag{"TRIREME_HANG_TIMEOUT", "0..86400",
         "Seconds after which the launcher ends a rank that neither runs nor waits while others wait "
         "for it; at least three steps. Default 4; 0: never."},
    Flag{"TRIREME_JOB", "name",
         "Tells the job from others in all its starts: when it starts again, training goes on from its own checkpoints "
         "only. Set by the launcher."},
    Flag{"TRIREME_RESTARTS", "0..",
         "How often the launcher may start the job again. Set by the launcher (--restarts)."},
    Flag{
        "TRIREME_RESTART_COUNT", "0..",
        "How often the launcher has started the job again; from 1 on, training goes on from the newest checkpoint that "
        "the job has made."},
    Flag{"RANK", "0..WORLD_SIZE-1", "Rank of this process. Set by the launcher or torchrun; default 0."},
    Flag{"WORLD_SIZE", "1..", "Number of ranks of the job. Set by the launcher or torchrun; default 1."},
    Flag{"LOCAL_RANK", "0..", "Rank of this process among those of its host. Default RANK."},
    Flag{"LOCAL_WORLD_SIZE", "1..", "Number of ranks on this host. Default WORLD_SIZE."},
    Flag{"MASTER_ADDR", "address", "Host of the job's key-value store. Needed when WORLD_SIZE is above 1."},
    Flag{"MASTER_PORT", "1..65535", "Port of the job's key-value store. Needed when WORLD_SIZE is above 1."},
    Flag{"TORCHELASTIC_RUN_ID", "name", "Name of the job under torchrun."},
    Flag{"TORCHELASTIC_RESTART_COUNT", "0..", "How often torchrun has started the job again."},
    Flag{"TORCHELASTIC_USE_AGENT_STORE", "True|False",
         "True: torchrun itself listens on MASTER_PORT, so rank 0 takes the next free port."},
    Flag{"CUDA_HOME", "folder",
         "Where the device cuda looks for lib64/libnvrtc.so and libcublas.so if the system does not find them. Default "
         "/usr/local/cuda."},
    Flag{"OMPI_COMM_WORLD_RANK", "0..", "Rank of this process when mpirun starts it."},
    Flag{"OMPI_COMM_WORLD_SIZE", "1..", "Number of ranks when mpirun starts them."},
    Flag{"OMPI_COMM_WORLD_LOCAL_RANK", "0..", "Rank among those of this host under mpirun."},
    Flag{"OMPI_COMM_WORLD_LOCAL_SIZE", "1..", "Number of ranks on this host under mpirun."},
    Flag{"PMIX_NAMESPACE", "name", "Name of the job under mpirun."},
    Flag{"PMIX_RANK", "0..", "Rank of this process when a launcher with PMIx starts it."},
    Flag{"PMI_RANK", "0..", "Rank of this process when MPICH's or Intel MPI's mpirun starts it."},
    Flag{"PMI_SIZE", "1..", "Number of ranks under MPICH's or Intel MPI's mpirun."},
    Flag{"MPI_LOCALRANKID", "0..", "Rank among those of this host, as PMI_RANK."},
    Flag{"MPI_LOCALNRANKS", "1..", "Number of ranks on this host, as PMI_SIZE."},
    Flag{"SLURM_PROCID", "0..", "Rank of this process when srun starts it."},
    Flag{"SLURM_STEP_NUM_TASKS", "1..", "Number of ranks when srun starts them."},
    Flag{"SLURM_LOCALID", "0..", "Rank among those of this host under srun."},
    Flag{"SLURM_NODEID", "0..", "This host's place in SLURM_STEP_NODELIST."},
    Flag{"SLURM_STEP_NODELIST", "n[1-3,7]", "The hosts of the ranks that srun started."},
    Flag{"SLURM_STEP_TASKS_PER_NODE", "4(x2),3", "Ranks on each host of SLURM_STEP_NODELIST."},
    Flag{"SLURM_JOB_ID", "number", "The job's number in SLURM; with the step's it gives the port."},
    Flag{"SLURM_STEP_ID", "number", "Number of this srun within its SLURM job."},
    Flag{"RANK_TABLE_FILE", "path", "Rank table (JSON) with every rank's host; needs RANK_ID."},
    Flag{"RANK_ID", "0..", "Rank of this process in RANK_TABLE_FILE."},
    Flag{"RANK_SIZE", "1..", "Number of ranks in RANK_TABLE_FILE; checked when set."},
    Flag{"DEVICE_ID", "0..", "Device of this process in RANK_TABLE_FILE; checked when set."},
    Flag{"JOB_COMPLETION_INDEX", "0..", "Rank of this pod in an indexed Kubernetes job; needs WORLD_SIZE."},
    Flag{"MS_ROLE", "MS_WORKER|MS_SCHED",
         "MindSpore's name for what `trireme train` or `trireme launch` is to be: one rank, or the scheduler."},
    Flag{"MS_WORKER_NUM", "1..", "MindSpore's name for --world, the number of ranks."},
    Flag{"MS_SCHED_HOST", "host", "MindSpore's name for the host of --master."},
    Flag{"MS_SCHED_PORT", "1024..65535", "MindSpore's name for the port of --master."},
    Flag{"MS_NODE_ID", "name", "MindSpore's name for --node-id; a number is the rank's place."},
    Flag{"MS_WORKER_IP", "address", "MindSpore's name for --address."},
    Flag{"MS_TOPO_TIMEOUT", "seconds", "MindSpore's name for --window."},
    Flag{"MS_NODE_TIMEOUT", "seconds", "MindSpore's name for --heartbeat."},
    Flag{"MS_DISABLE_HEARTBEAT", "0|1", "MindSpore's name for --heartbeat 0."},
    Flag{"MS_SERVER_NUM", "0", "MindSpore's number of parameter servers, of which there are none."},
    Flag{"MS_ENABLE_RECOVERY", "0|1", "MindSpore's; without effect, as --restarts is what lets a job go on."},
    Flag{"MS_RECOVERY_PATH", "path",
         "MindSpore's; without effect, as a restarted scheduler learns everything from the nodes."},
    Flag{"MS_RECEIVE_MSG_TIMEOUT", "seconds", "MindSpore's; without effect, as reports are repeated."},
    Flag{"MS_RETRY_INTERVAL_LOWER", "seconds",
         "MindSpore's; without effect: the interval is drawn between 0.2 and 0.5 seconds."},
    Flag{"MS_RETRY_INTERVAL_UPPER", "seconds", "As MS_RETRY_INTERVAL_LOWER."},
    Flag{"MS_HCCL_CM_INIT", "0|1", "MindSpore's; without effect: it is for another device."},
    Flag{"MS_ENABLE_LCCL", "0|1", "MindSpore's; without effect: it is for another device."},
    Flag{"XDG_CACHE_HOME", "path",
         "Folder in which what was measured on this machine is kept (--tuning). Default: .cache in HOME."},
    Flag{"HOME", "path", "The user's folder, in which .cache is."},
    Flag{"NO_COLOR", "any", "Set to anything: no colours on the terminal."},
    Flag{"LC_ALL", "name.UTF-8", "Language of the terminal; with UTF-8 in it the progress bar is drawn in fine steps."},
    Flag{"LC_CTYPE", "name.UTF-8", "Like LC_ALL, which takes precedence."},
    Flag{"LANG", "name.UTF-8", "Like LC_ALL and LC_CTYPE, which take precedence."},
    Flag{"TERM", "name", "Kind of terminal; 'dumb' turns the redrawn progress line off."},
    Flag{"TMPDIR", "path", "Where temporary files go. Default /tmp."},
};

}  // namespace

std::span<const Flag> all_flags() {
  return kFlags;
}

std::optional<std::string> flag_text(std::string_view name) {
  const auto flag = std::ranges::find(kFlags, name, &Flag::name);
  invariant(flag != kFlags.end(), "environment variable '{}' is not in the table of base/flags", name);
  // The names in the table are literals, so their text ends with a zero.
  const char* value = std::getenv(flag->name.data());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

int64_t flag_number(std::string_view name, std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  require(status == std::errc() && stop == end && value >= low && value <= high,
          "environment variable {}='{}': it must be a whole number from {} to {}", name, text, low, high);
  return value;
}

std::optional<int64_t> flag_int(std::string_view name, int64_t low, int64_t high) {
  const std::optional<std::string> text = flag_text(name);
  if (!text) return std::nullopt;
  return flag_number(name, *text, low, high);
}

std::optional<bool> flag_bool(std::string_view name) {
  const std::optional<std::string> text = flag_text(name);
  if (!text) return std::nullopt;
  for (std::string_view yes : {"1", "true", "yes", "on"}) {
    if (*text == yes) return true;
  }
  for (std::string_view no : {"0", "false", "no", "off"}) {
    if (*text == no) return false;
  }
  fail(ErrorKind::kInvalidArgument, "environment variable {}='{}': it must be 1, true, yes, on, 0, false, no or off",
       name, *text);
}

std::map<std::string, std::string, std::less<>> flag_values() {
  std::map<std::string, std::string, std::less<>> values;
  for (const Flag& flag : kFlags) {
    if (auto value = flag_text(flag.name)) values.emplace(flag.name, std::move(*value));
  }
  return values;
}

std::vector<std::string> unknown_flags() {
  std::vector<std::string> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("TRIREME_")) continue;
    if (std::ranges::find(kFlags, name, &Flag::name) == kFlags.end()) unknown.emplace_back(name);
  }
  std::ranges::sort(unknown);
  return unknown;
}

}  // namespace trireme

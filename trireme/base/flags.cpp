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
    Flag{"TRIREME_LOG", "warn,plan=debug",
         "Log level for all components, then per component: error, warn, info or debug. Default "
         "warn."},
    Flag{"TRIREME_THREADS", "1..1024",
         "Compute threads of each rank. Default: the cores of the machine over the ranks on it."},
    Flag{"TRIREME_ISA", "baseline|avx2|avx512|avx512_bf16|native",
         "Best instruction set the CPU kernels may use. Default native: the machine's best."},
    Flag{"TRIREME_TRANSPORT", "auto|threads|shm|ucx|mpi",
         "How ranks exchange tensors. Default auto: the fastest that reaches every rank."},
    Flag{"TRIREME_SECRET_FILE", "path",
         "File of mode 0600 with the job's secret, 64 hexadecimal digits. Set by the launcher."},
    Flag{"TRIREME_SECRET", "64 hexadecimal digits",
         "The job's secret itself, where a file on every host is not to be had."},
    Flag{"TRIREME_ERROR_FD", "number",
         "Pipe on which a worker tells the launcher why it failed. Set by the launcher."},
    Flag{"RANK", "0..WORLD_SIZE-1",
         "Rank of this process. Set by the launcher or torchrun; default 0."},
    Flag{"WORLD_SIZE", "1..",
         "Number of ranks of the job. Set by the launcher or torchrun; default 1."},
    Flag{"LOCAL_RANK", "0..", "Rank of this process among those of its host. Default RANK."},
    Flag{"LOCAL_WORLD_SIZE", "1..", "Number of ranks on this host. Default WORLD_SIZE."},
    Flag{"MASTER_ADDR", "address",
         "Host of the job's key-value store. Needed when WORLD_SIZE is above 1."},
    Flag{"MASTER_PORT", "1..65535",
         "Port of the job's key-value store. Needed when WORLD_SIZE is above 1."},
    Flag{"OMPI_COMM_WORLD_RANK", "0..", "Rank of this process when it is started by mpirun."},
    Flag{"OMPI_COMM_WORLD_SIZE", "1..", "Number of ranks when they are started by mpirun."},
    Flag{"OMPI_COMM_WORLD_LOCAL_RANK", "0..", "Rank among those of this host under mpirun."},
    Flag{"OMPI_COMM_WORLD_LOCAL_SIZE", "1..", "Number of ranks on this host under mpirun."},
    Flag{"NO_COLOR", "any", "Set to anything: no colours on the terminal."},
    Flag{"LC_ALL", "name.UTF-8",
         "Language of the terminal; with UTF-8 in it the progress bar is drawn in fine steps."},
    Flag{"LC_CTYPE", "name.UTF-8", "As LC_ALL, which comes first."},
    Flag{"LANG", "name.UTF-8", "As LC_ALL and LC_CTYPE, which come first."},
    Flag{"TERM", "name", "Kind of terminal; 'dumb' turns the redrawn progress line off."},
    Flag{"TMPDIR", "path", "Where temporary files go. Default /tmp."},
};

}  // namespace

std::span<const Flag> all_flags() {
  return kFlags;
}

std::optional<std::string> flag_text(std::string_view name) {
  const auto flag = std::ranges::find(kFlags, name, &Flag::name);
  invariant(flag != kFlags.end(), "environment variable '{}' is not in the table of base/flags",
            name);
  // The names in the table are literals, so their text ends with a zero.
  const char* value = std::getenv(flag->name.data());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<int64_t> flag_int(std::string_view name, int64_t low, int64_t high) {
  const std::optional<std::string> text = flag_text(name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, status] = std::from_chars(text->data(), end, value);
  require(status == std::errc() && stop == end && value >= low && value <= high,
          "environment variable {}='{}': it must be a whole number from {} to {}", name, *text, low,
          high);
  return value;
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
  fail(ErrorKind::kInvalidArgument,
       "environment variable {}='{}': it must be 1, true, yes, on, 0, false, no or off", name,
       *text);
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

// A command line that starts itself again as the ranks of a job (commands.h).
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/commands.h"
#include "cli/node_flags.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/flags.h"
#include "trireme/launch/cluster/agent.h"
#include "trireme/launch/start/start.h"
#include "trireme/launch/supervise/supervise.h"

namespace trireme::cli {
namespace {

// The words this process was started with.
std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> words;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\0', at), all.size());
    words.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  invariant(!words.empty(), "/proc/self/cmdline is empty");
  words[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

}  // namespace

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string typed_command() {
  const std::vector<std::string> words = own_command();
  std::string out = "trireme";
  for (size_t i = 1; i < words.size(); ++i) out += " " + quoted(words[i]);
  return out;
}

bool is_worker() {
  return launch::describe_start(flag_values(), read_file).world > 1;
}

int ranks_of_job() {
  return launch::describe_start(flag_values(), read_file).world;
}

bool has_launcher() {
  return mindspore_role().empty() && launch::describe_start(flag_values(), read_file).served;
}

void check_ranks(int asked, int least) {
  const launch::RankInfo info = launch::describe_start(flag_values(), read_file);
  if (info.world == 1) return;
  if (least > 0 && info.world >= least && info.world <= asked) return;
  require(asked == 1 || asked == info.world || asked == info.local_world,
          "-n {}, but {} has started this process as rank {} of {} ({}); leave -n out", asked, info.started_by,
          info.rank, info.world, info.evidence);
}

int relaunch(const RelaunchOptions& options) {
  const launch::LaunchOptions local{.ranks = options.ranks,
                                    .command = own_command(),
                                    .threads = options.threads,
                                    .pin = true,
                                    .log_dir = options.log_dir,
                                    .restarts = options.restarts,
                                    .min_ranks = options.min_ranks,
                                    .can_run = options.can_run};
  if (options.node == nullptr) return tell(launch::supervise(local));
  launch::NodeOptions node = *options.node;
  node.local = local;
  node.terminal = true;
  return tell(launch::launch_node(node));
}

int tell(const launch::LaunchResult& result) {
  if (!result.report.empty()) {
    std::fprintf(stderr, "%s%s", result.failed_rank >= 0 ? "error: " : "", result.report.c_str());
  }
  return result.exit_code;
}

}  // namespace trireme::cli

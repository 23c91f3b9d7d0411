// The subcommands of the program `trireme`, one file each. `add` declares the command's options; what the user chose
// runs after parsing and returns the exit code.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme::launch {
struct LaunchResult;
struct NodeOptions;
}  // namespace trireme::launch

namespace trireme::cli {

using Action = std::function<int()>;

// Each adds its command to the program and, when that command is the one chosen, sets `chosen`.
void add_train(CLI::App& app, Action& chosen);
void add_evaluate(CLI::App& app, Action& chosen);
void add_generate(CLI::App& app, Action& chosen);
void add_checkpoint(CLI::App& app, Action& chosen);
void add_explain(CLI::App& app, Action& chosen);
void add_calibrate(CLI::App& app, Action& chosen);
void add_models(CLI::App& app, Action& chosen);
void add_plan(CLI::App& app, Action& chosen);
void add_simulate(CLI::App& app, Action& chosen);
void add_timetable(CLI::App& app, Action& chosen);
void add_launch(CLI::App& app, Action& chosen);
void add_scheduler(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_bench_decode(CLI::App& bench, Action& chosen);  // to the command bench
void add_help(CLI::App& app, Action& chosen);

// Runs this same command line as `ranks` worker processes and returns the job's exit code.
struct RelaunchOptions {
  int ranks = 1;
  int min_ranks = 0;  // as in launch::LaunchOptions, as is `can_run`
  std::function<bool(int ranks)> can_run = {};
  int threads = 0;
  std::string log_dir;
  int restarts = 0;
  const launch::NodeOptions* node = nullptr;  // of a job on several nodes; null: the job is on this host alone
};
int relaunch(const RelaunchOptions& options);
// Says on standard error what a launcher has to report, and returns the job's exit code.
int tell(const launch::LaunchResult& result);
// A word of a command as a shell reads it back: in quotes where it needs them.
std::string quoted(const std::string& word);
// The command line as a shell would take it again, its program as "trireme".
std::string typed_command();
// Whether `trireme launch` or a command that starts its own ranks has started this process.
bool has_launcher();
// Whether this process is one of several ranks that some launcher has started.
bool is_worker();
int ranks_of_job();  // that it is one of; 1 when nobody started it as a rank
// In such a rank, throws when its command line asks for another number of ranks; with `least` above 0, for none from
// that up.
void check_ranks(int asked, int least = 0);

}  // namespace trireme::cli

// trireme calibrate: measures this machine and writes its file, by which plans are made.
#include <CLI/CLI.hpp>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "trireme/base/bytes_text.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/cost/op_seconds.h"
#include "trireme/mesh/machine.h"
#include "trireme/train/job/job.h"
#include "trireme/train/plan/calibrate.h"

namespace trireme::cli {
namespace {

struct CalibrateArgs {
  int ranks = 1;
  int threads = 1;
  std::string out = "machine.toml";
  std::string name = "this_host";
  std::string transport = "auto";
  std::string disk;
};

// How far the fitted rates are from the times that they are fitted to: by op, and of the sum.
void print_fit(const Calibration& found) {
  struct Row {
    double measured = 0, fitted = 0;
    int samples = 0;
  };
  std::map<std::string, Row> rows;
  Row all;
  for (const OpSample& sample : found.samples) {
    const auto rate = std::ranges::find(found.machine.op_rates, sample.op, &OpRate::ops);
    const double fitted = seconds_by(*rate, sample.bound);
    for (Row* row : {&rows[sample.op], &all}) {
      row->measured += sample.seconds;
      row->fitted += fitted;
      ++row->samples;
    }
  }
  std::printf("%-24s %8s %12s %8s %10s %10s %8s\n", "op", "samples", "achievable", "memory", "launch us", "ms", "fit");
  for (const OpRate& rate : found.machine.op_rates) {
    if (rate.ops == "*") continue;
    const Row& row = rows[rate.ops];
    std::printf("%-24s %8d %12.3g %8.2g %10.2f %10.3f %+7.1f%%\n", rate.ops.c_str(), row.samples, rate.achievable,
                rate.memory, rate.launch_s * 1e6, row.measured * 1e3, 100 * (row.fitted / row.measured - 1));
  }
  std::printf("%-24s %8d %12s %8s %10s %10.3f %+7.1f%%\n", "all", all.samples, "", "", "", all.measured * 1e3,
              100 * (all.fitted / all.measured - 1));
}

// What a rank takes for the largest of the models that it trains.
constexpr int64_t kRankBytes = int64_t{800} << 20;

int run(const CalibrateArgs& args) {
  if (!args.disk.empty())
    require_directory(args.disk, "calibrate: --disk", "name a directory that there is, or make one");
  require(!args.out.empty(), "calibrate: --out is empty; name a file");
  require_place_for(args.out, "calibrate: --out");
  require(!args.name.empty(), "calibrate: --name is empty; give the machine a name");
  const Machine host = Machine::this_host();
  const int64_t most = std::max<int64_t>(1, host.memory_bytes * host.devices() / kRankBytes);
  require(args.ranks <= most, "calibrate: {} ranks take {} each and this host has {}; give at most {} (-n)", args.ranks,
          bytes_text(kRankBytes), bytes_text(static_cast<double>(host.memory_bytes * host.devices())), most);
  if (args.ranks > 1 && !is_worker()) return relaunch({.ranks = args.ranks, .threads = args.threads});
  const Job job({.transport = args.transport, .threads = args.threads});
  const double begin = now_s();
  const bool is_first = job.rank() == 0;
  const bool shows = is_first && ::isatty(STDERR_FILENO) == 1;
  Calibration found = calibrate(job.world(), job.pool(),
                                [&](std::string_view what) {
                                  if (shows) std::fprintf(stderr, "\r\033[Kmeasuring %s", std::string(what).c_str());
                                },
                                {.directory = args.disk});
  if (shows) std::fprintf(stderr, "\r\033[K");
  if (!is_first) return 0;
  found.machine.name = args.name;
  write_machine(found.machine, args.out);
  const Machine& machine = found.machine;
  std::printf("%.0f GFLOP/s in f32, %.0f in bf16; memory %.1f GB/s; %s %.1f us and %.2f GB/s\n\n",
              machine.flops_of("f32") * 1e-9, machine.flops_of("bf16") * 1e-9, machine.memory_bytes_per_s * 1e-9,
              args.ranks > 1 ? "between ranks" : "between ranks (not measured with one)",
              machine.levels.back().latency_s * 1e6, machine.levels.back().bytes_per_s * 1e-9);
  if (args.ranks > 1) {
    std::printf("computing loses %.0f %% of the time of a sum that is under way beside it\n\n",
                machine.overlap_slowdown * 100);
  }
  print_fit(found);
  if (found.disk) {
    std::printf("\ndisk of a rank: %.2f GB/s written, %.2f GB/s read, by %s%s\n",
                found.disk->written_bytes_per_s * 1e-9, found.disk->read_bytes_per_s * 1e-9, found.disk->way.c_str(),
                found.disk->is_direct ? "" : " and the system's cache");
  }
  std::printf("\nWrote %s in %.0f s: for parallel.machine, and `trireme explain CONFIG --stage time`.\n",
              args.out.c_str(), now_s() - begin);
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<CalibrateArgs>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Measure ops, memory and links of this machine and write its file, for plans");
  command
      ->add_option("-n,--ranks", args->ranks,
                   "Ranks that measure at the same time, and whose links are measured; as many as jobs will have")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--threads", args->threads, "Compute threads of each rank; 0: the cores divided by the ranks")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--out", args->out, "The file to write")->capture_default_str();
  command->add_option("--name", args->name, "The machine's name in it")->capture_default_str();
  command->add_option("--transport", args->transport, "How ranks exchange tensors")
      ->check(CLI::IsMember({"auto", "shm", "ucx", "mpi"}))
      ->capture_default_str();
  command->add_option("--disk", args->disk,
                      "Directory on the disk on which ranks may keep values; each rank writes 512 MiB there, which are "
                      "removed. By default the disk is not measured");
  command->footer("Example:\n  trireme calibrate -n 2 --out machine.toml");
  command->callback([=, &chosen] { chosen = [=] { return run(*args); }; });
}

}  // namespace trireme::cli

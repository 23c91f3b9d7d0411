// A job of two nodes trains while connections that do not know its secret come to every port on which one of its
// processes listens (hellos.h). None may be let in, the losses must be those of a job that nobody disturbs, and memory
// and file descriptors of the processes must come back. docs/reliability.md has what a long run counted.
//
//   reliability_test --gtest_filter='Hellos.*'                           a few thousand, as CTest runs it
//   reliability_test --gtest_filter='Hellos.*' --hellos=1000000 --seed=7
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "tests/cli/nodes.h"
#include "tests/reliability/hellos.h"
#include "tests/reliability/sizes.h"
#include "trireme/launch/start/secret.h"
#include "trireme/train/report/run_log.h"

namespace trireme::cli::hellos_test {
namespace {

namespace fs = std::filesystem;

constexpr int kThrowers = 8;
constexpr size_t kMostCompared = 10'000;   // steps
constexpr int64_t kMostGrowth = 32 << 10;  // KiB of memory of one process, over all hellos

struct Use {
  int64_t memory = 0;  // KiB
  int64_t files = 0;
};

std::optional<double> value_of(const RunRecord& record, std::string_view name) {
  const auto at = std::ranges::find(record.values, name, &std::pair<std::string, double>::first);
  return at == record.values.end() ? std::nullopt : std::optional(at->second);
}

double middle(std::vector<double> all) {
  if (all.empty()) return 0;
  std::ranges::sort(all);
  return all[all.size() / 2];
}

class Hellos : public NodesTest {
 protected:
  // Both nodes of a job that trains for so many steps, or until it is told to end.
  void start_job(const std::string& out, int64_t steps) {
    const int64_t world = 2;
    scheduler_ = scheduler(world);
    for (int rank = 0; rank < world; ++rank) {
      nodes_.push_back(begin(fmt::format("node{}", rank),
                             {"launch",
                              "--master",
                              master(),
                              "--world",
                              std::to_string(world),
                              "--node-rank",
                              std::to_string(rank),
                              "-n",
                              "1",
                              "--secret-file",
                              "secret",
                              "--",
                              TRIREME_PROGRAM,
                              "train",
                              "gpt.toml",
                              "--out",
                              out,
                              "--quiet",
                              "--set",
                              fmt::format("train.steps={}", steps),
                              "--set",
                              "parallel.transport=ucx",
                              "--set",
                              "train.batch=32"},
                             {"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"}));
    }
  }
  void end_job(int code) {
    for (Program& node : nodes_) {
      const Outcome outcome = finish(node);
      EXPECT_EQ(outcome.code, code) << outcome.err;
    }
    finish(scheduler_);
    nodes_.clear();
  }

  std::vector<RunRecord> steps_of(const std::string& out) const {
    const std::string log = path(out + "/metrics.jsonl");
    std::vector<RunRecord> all = fs::exists(log) ? read_run_log(log) : std::vector<RunRecord>();
    std::erase_if(all, [](const RunRecord& record) { return !value_of(record, "loss"); });
    return all;
  }
  bool wait_for_steps(const std::string& out, size_t steps) const {
    return soon([&] { return steps_of(out).size() >= steps || !is_running(nodes_[0]); }) && is_running(nodes_[0]);
  }

  std::vector<int> processes() const {
    std::vector<int> all = left_over();
    std::erase_if(all, [](int process) { return !fs::exists(fmt::format("/proc/{}/exe", process)); });
    return all;
  }
  static std::set<std::string> sockets_of(int process) {
    std::set<std::string> out;
    std::error_code gone;
    for (const fs::directory_entry& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", process), gone)) {
      const std::string name = fs::read_symlink(entry.path(), gone).string();
      if (name.starts_with("socket:[")) out.insert(name.substr(8, name.size() - 9));
    }
    return out;
  }
  // Ports at which a process of the job takes connections: those of its sockets that the kernel lists in state 0A.
  std::vector<Target> targets() const {
    std::set<std::string> sockets;
    for (const int process : processes()) sockets.merge(sockets_of(process));
    std::vector<Target> out;
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
      std::stringstream text(read(table));
      for (std::string line; std::getline(text, line);) {
        std::stringstream words(line);
        std::string slot, local, remote, state, queues, timer, retries, user, timeout, inode;
        words >> slot >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout >> inode;
        if (state != "0A" || !sockets.contains(inode)) continue;
        const auto port = static_cast<uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16));
        out.push_back(target_at(port, static_cast<uint16_t>(port_)));
      }
    }
    return out;
  }

  static Use use_of(int process) {
    Use use;
    std::stringstream text(read(fmt::format("/proc/{}/status", process)));
    for (std::string word; text >> word;) {
      if (word == "VmRSS:") text >> use.memory;
    }
    std::error_code gone;
    use.files =
        std::distance(fs::directory_iterator(fmt::format("/proc/{}/fd", process), gone), fs::directory_iterator());
    return use;
  }
  std::map<int, Use> uses() const {
    std::map<int, Use> out;
    for (const int process : processes()) out[process] = use_of(process);
    return out;
  }

  HelloCounts throw_all(const std::vector<Target>& targets, const comm::Secret& secret) const {
    std::vector<std::unique_ptr<Thrower>> throwers;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThrowers; ++i) {
      throwers.push_back(std::make_unique<Thrower>(targets, secret, sizes.seed * 1000 + static_cast<uint32_t>(i)));
      Thrower* const thrower = throwers.back().get();
      threads.emplace_back(
          [thrower, i] { thrower->run(sizes.hellos / kThrowers + (i < sizes.hellos % kThrowers ? 1 : 0)); });
    }
    HelloCounts counts;
    for (size_t i = 0; i < threads.size(); ++i) {
      threads[i].join();
      counts += throwers[i]->counts();
    }
    return counts;
  }

  void check_use(const std::map<int, Use>& before) {
    EXPECT_TRUE(soon([&] {
      return std::ranges::all_of(before, [](const auto& one) { return use_of(one.first).files <= one.second.files; });
    })) << "file descriptors did not come back";
    for (const auto& [process, use] : before) {
      const Use now = use_of(process);
      fmt::print("process {}: {} KiB and {} file descriptors before, {} KiB and {} after\n", process, use.memory,
                 use.files, now.memory, now.files);
      EXPECT_LT(now.memory - use.memory, kMostGrowth) << process;
      EXPECT_GT(now.memory, 0) << "process " << process << " has ended";
    }
  }

  // The same steps undisturbed, at least the first of them: the same bits.
  void compare(const std::vector<RunRecord>& disturbed, size_t from, size_t to) {
    const size_t steps = std::min(disturbed.size(), kMostCompared);
    start_job("calm", static_cast<int64_t>(steps));
    end_job(0);
    const std::vector<RunRecord> calm = steps_of("calm");
    ASSERT_EQ(calm.size(), steps);
    std::vector<double> times[2];
    for (size_t i = 0; i < calm.size(); ++i) {
      ASSERT_EQ(value_of(calm[i], "loss"), value_of(disturbed[i], "loss")) << "step " << calm[i].step;
      if (i < from || i >= to) continue;
      times[0].push_back(*value_of(calm[i], "ms"));
      times[1].push_back(*value_of(disturbed[i], "ms"));
    }
    fmt::print(
        "{} steps with the losses of a calm job; a step took {:.2f} ms calm and {:.2f} ms disturbed, in the middle of "
        "{}\n",
        calm.size(), middle(times[0]), middle(times[1]), times[0].size());
  }
  Program scheduler_;
  std::vector<Program> nodes_;
};

TEST_F(Hellos, NoneIsLetInAndTheJobTrainsAsIfNobodyHadCome) {
  SCOPED_TRACE(fmt::format("--seed={}", sizes.seed));
  write_gpt();
  const comm::Secret secret = launch::read_secret(path("secret"), "secret");
  start_job("disturbed", 1'000'000'000);
  ASSERT_TRUE(wait_for_steps("disturbed", 5)) << err_of(nodes_[0]);

  const std::vector<Target> ports = targets();
  std::map<Listener, int> listeners;
  for (const Target& target : ports) ++listeners[target.listener];
  fmt::print("listening: {} scheduler, {} stores, {} of UCX\n", listeners[Listener::kScheduler],
             listeners[Listener::kStore], listeners[Listener::kOther]);
  ASSERT_EQ(listeners[Listener::kScheduler], 1);
  ASSERT_GE(listeners[Listener::kStore], 1);
  for (const Target& target : ports) {
    EXPECT_TRUE(target.listener == Listener::kOther || Thrower({}, secret, 0).is_let_in(target))
        << "the right proof at " << target.port;
  }

  const std::map<int, Use> before = uses();
  const size_t first = steps_of("disturbed").size();
  const double begin_s = now_s();
  const HelloCounts counts = throw_all(ports, secret);
  const double took_s = now_s() - begin_s;
  const size_t last = steps_of("disturbed").size();
  for (size_t i = 0; i < kHelloNames.size(); ++i) fmt::print("{}: {}\n", kHelloNames[i], counts.thrown[i]);
  fmt::print("{} hellos in {:.1f} s, {} not connected\naccepted: {}\n", sizes.hellos, took_s, counts.not_connected,
             counts.accepted);
  EXPECT_EQ(counts.accepted, 0);
  check_use(before);
  EXPECT_TRUE(wait_for_steps("disturbed", last + 5)) << "it trains no more: " << err_of(nodes_[0]) << err_of(nodes_[1]);

  ASSERT_EQ(::kill(nodes_[0].pid, SIGINT), 0);
  end_job(130);
  const uintmax_t said = fs::file_size(path("io/scheduler.err")) + fs::file_size(path("io/node0.err"));
  EXPECT_LT(said, 65'536U) << "refusals fill the logs";
  compare(steps_of("disturbed"), first, last);
}

}  // namespace
}  // namespace trireme::cli::hellos_test

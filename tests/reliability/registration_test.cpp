// How long jobs take to form: eight workers of one host until their first collective is done, 256 workers at a
// scheduler by its real connections, 10,000 at its core, and many by real connections at a scheduler that is a process
// of its own. docs/reliability.md has the figures; what is checked here is that all are right.
//
//   reliability_test --gtest_filter='*OfItsOwn*' --nodes=1250 --on-node=8     200 nodes of one worker otherwise
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/cli/nodes.h"
#include "tests/cli/program.h"
#include "tests/reliability/many_agents.h"
#include "tests/reliability/sizes.h"
#include "trireme/base/clock.h"
#include "trireme/launch/cluster/handshake.h"
#include "trireme/launch/cluster/link.h"
#include "trireme/launch/cluster/message.h"
#include "trireme/launch/cluster/scheduler.h"
#include "trireme/launch/rank/rank_info.h"

namespace trireme::cli::registration_test {
namespace {

using namespace launch;

double cpu_s() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double resident_mb() {
  long pages = 0;
  long resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * 4096 / 1e6;
}

class Registration : public CliTest {};

TEST_F(Registration, EightWorkersOfOneHostAreRegisteredAgreeAndHaveDoneACollective) {
  std::vector<double> all;
  for (int i = 0; i < 10; ++i) {
    std::filesystem::remove_all(path("logs"));
    const double begin = now_s();
    const Outcome outcome =
        run({"launch", "--nnodes", "1", "-n", "8", "--log-dir", "logs", "--",
             std::filesystem::read_symlink("/proc/self/exe").string(),
             "--gtest_filter=RegistrationWorker.DISABLED_Sums", "--gtest_also_run_disabled_tests", "--gtest_brief=1"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    double last = 0;
    for (int rank = 0; rank < 8; ++rank) {
      const std::string log = read(path(fmt::format("logs/worker_{}.log", rank)));
      const size_t at = log.find("summed to 28 at ");
      ASSERT_NE(at, std::string::npos) << log;
      last = std::max(last, std::atof(log.c_str() + at + 16));
    }
    all.push_back(last - begin);
  }
  std::ranges::sort(all);
  fmt::print(
      "8 workers, from the start of the launcher until all have done their first sum: {:.2f} s in the middle of 10, "
      "{:.2f} s at most\n",
      all[5], all[9]);
}

TEST(RegistrationWorker, DISABLED_Sums) {
  const RankInfo info = find_rank();
  const auto world = join(info);
  auto sum = static_cast<float>(info.rank);
  world->all().all_reduce({reinterpret_cast<std::byte*>(&sum), {DType::kF32, Shape{1}}}, comm::Reduce::kSum).wait();
  fmt::print("summed to {} at {:.6f}\n", sum, now_s());
}

TEST(RegistrationAtTheScheduler, TwoHundredAndFiftySixWorkersAreTold) {
  constexpr int kWorld = 256;
  const comm::Secret secret = comm::random_secret();
  const double begin = now_s();
  const Scheduler scheduler({.cluster = {.world = kWorld}, .secret = secret, .max_pending = kWorld});
  std::vector<std::unique_ptr<SchedulerLink>> links;
  for (int i = 0; i < kWorld; ++i) {
    links.push_back(std::make_unique<SchedulerLink>(
        LinkOptions{.host = "127.0.0.1", .address = "127.0.0.1", .port = scheduler.port(), .secret = secret},
        node(i, kWorld)));
  }
  const Deadline deadline(std::chrono::seconds(120));
  for (int i = 0; i < kWorld; ++i) {
    const auto& link = *links[static_cast<size_t>(i)];
    SchedulerLink::News news = link.news();
    while ((!news.view || news.view->phase != Phase::kRunning) && !deadline.passed()) {
      pollfd polled{link.fd(), POLLIN, 0};
      poll(&polled, 1, 100);
      news = link.news();
    }
    ASSERT_TRUE(news.view) << news.trouble;
    EXPECT_EQ(news.view->first_rank, i);
  }
  fmt::print("256 workers at a scheduler, each with a connection of its own, until all know their rank: {:.2f} s\n",
             now_s() - begin);
}

// What the scheduler does for each: the handshake, the seals, the message, the place among the others.
TEST(RegistrationAtTheScheduler, TenThousandWorkersHaveRanks) {
  constexpr int kWorld = 10'000;
  const comm::Secret secret = comm::random_secret();
  const double begin = cpu_s();
  const double before_mb = resident_mb();
  Cluster cluster({.world = kWorld, .window_ms = 600'000}, 0);
  std::vector<Seals> sessions;
  for (int i = 0; i < kWorld; ++i) {
    ServerHandshake server(secret);
    ClientHandshake client(secret);
    const auto outcome = server.check(*client.answer(server.challenge()));
    ASSERT_TRUE(outcome.has_value());
    auto seals = client.check(outcome->proof);
    const std::string message = seals->seal(encode(node(i, kWorld)));
    sessions.push_back(outcome->seals);
    const NodeReport report = decode_report(*sessions.back().open(message));
    (void)sessions.back().seal(encode(cluster.report(report, i)));
  }
  ASSERT_EQ(cluster.phase(), Phase::kRunning);
  for (int i = 0; i < kWorld; ++i) {
    const ClusterView view = cluster.view_of(std::to_string(i));
    ASSERT_EQ(view.first_rank, i);
    (void)sessions[static_cast<size_t>(i)].seal(encode(view));
  }
  fmt::print(
      "10,000 workers at a scheduler's core, with the workers' half of each handshake: {:.2f} s of one processor, "
      "{:.1f} MB\n",
      cpu_s() - begin, resident_mb() - before_mb);
}

// Processor time and memory of another process, as the kernel counts them.
double cpu_s_of(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  long user = 0;
  long kernel = 0;
  std::sscanf(text.c_str() + text.rfind(')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user,
              &kernel);
  return static_cast<double>(user + kernel) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double peak_mb_of(int process) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) * 1024 / 1e6;
  }
  return 0;
}

class ManyRegistrations : public NodesTest {};

TEST_F(ManyRegistrations, AreTakenByASchedulerOfItsOwn) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t needed = 64 + static_cast<rlim_t>(sizes.nodes) / 2;  // a quarter of a connection each, and gRPC's own
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = std::min(needed, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur < needed) GTEST_SKIP() << "it takes " << needed << " open files; the limit is " << limit.rlim_max;
  Program process = scheduler(sizes.nodes * sizes.on_node, {"--heartbeat", "0"});
  const double begin = now_s();
  std::string digits = read(path("secret"));
  digits.resize(2 * sizeof(comm::Secret));
  ManyAgents agents(sizes.nodes, sizes.on_node, static_cast<uint16_t>(port_), comm::secret_from_hex(digits));
  std::vector<int> ranks = agents.register_all(std::chrono::seconds(540));
  fmt::print(
      "{} workers of {} nodes over {} connections: {:.1f} s, of which the scheduler ran {:.1f} s and had {:.0f} MB at "
      "most; {} tried again\n",
      sizes.nodes * sizes.on_node, sizes.nodes, (sizes.nodes + 3) / 4, now_s() - begin, cpu_s_of(process.pid),
      peak_mb_of(process.pid), agents.retries());
  std::ranges::sort(ranks);
  for (int i = 0; i < sizes.nodes; ++i) ASSERT_EQ(ranks[static_cast<size_t>(i)], sizes.on_node * i);
  ::kill(process.pid, SIGKILL);
  finish(process);
}

}  // namespace
}  // namespace trireme::cli::registration_test

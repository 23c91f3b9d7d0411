// Jobs on several hosts that are network namespaces of this machine: they train as one process does, and when a cable
// is cut, a host is switched off or a rank ends, every rank that is left ends with an error that says who is lost.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "tests/cli/nodes.h"
#include "tests/hosts/hosts.h"

namespace trireme::cli::hosts_test {
namespace {

namespace fs = std::filesystem;

class HostsTest : public NodesTest {
 protected:
  void SetUp() override {
    const std::string why = Hosts::why_not();
    if (!why.empty()) GTEST_SKIP() << "no hosts can be made here: " << why;
    write_gpt();
  }

  void make_hosts(int count, int rate_mbit = 0) {
    hosts_.reset();
    hosts_ = std::make_unique<Hosts>(HostsOptions{count, rate_mbit});
  }

  // Each host's part of a training job; they see the same files.
  Program train(int host, const Words& more = {}, int ranks = 1) const {
    Words words{"train",
                "gpt.toml",
                "--quiet",
                "--out",
                "run",
                "-n",
                std::to_string(ranks),
                "--node-rank",
                std::to_string(host),
                "--master",
                Hosts::address(0),
                "--secret-file",
                "secret"};
    if (std::ranges::find(more, "--nnodes") == more.end()) append(words, {"--nnodes", std::to_string(hosts_->count())});
    append(words, more);
    return begin(Hosts::name(host), words, kTcp, hosts_->entry(host));
  }
  std::vector<Program> train_everywhere(const Words& more = {}, int ranks = 1) const {
    std::vector<Program> out;
    for (int host = 0; host < hosts_->count(); ++host) out.push_back(train(host, more, ranks));
    return out;
  }
  bool steps_are_done(const Program& first) const {
    return soon([&] { return losses("run").size() >= 3 || !is_running(first); }) && is_running(first);
  }
  std::vector<int> workers_of(const Program& program) const {
    std::stringstream text(read(fmt::format("/proc/{0}/task/{0}/children", program.pid)));
    std::vector<int> out;
    for (int process = 0; text >> process;) out.push_back(process);
    return out;
  }
  // The losses in the record of a run, as they were written.
  std::vector<std::string> losses(const std::string& run) const {
    std::vector<std::string> out;
    std::stringstream text(read(path(run + "/metrics.jsonl")));
    for (std::string line; std::getline(text, line);) {
      const size_t at = line.find("\"loss\":");
      if (at != std::string::npos) out.push_back(line.substr(at, line.find_first_of(",}", at) - at));
    }
    return out;
  }

  // The memory of one machine is no cable.
  const Words kTcp{"UCX_TLS=tcp,self"};
  const Words kForEver{"--set", "train.steps=1000000", "--set", "train.batch=12", "--heartbeat", "2"};
  std::unique_ptr<Hosts> hosts_;
};

TEST_F(HostsTest, TrainingOnSeveralHostsHasTheLossesOfOneProcess) {
  const Words job{"--set", "train.steps=8", "--set", "train.batch=12"};
  Words alone{"train", "gpt.toml", "--quiet", "--out", "alone"};
  append(alone, job);
  ASSERT_EQ(run(alone).code, 0);
  ASSERT_EQ(losses("alone").size(), 8);
  for (const int count : {2, 3, 4}) {
    SCOPED_TRACE(count);
    make_hosts(count, count == 4 ? 100 : 0);
    fs::remove_all(path("run"));
    for (Program& one : train_everywhere(job)) {
      const Outcome outcome = finish(one);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
    const auto one = losses("alone");
    const auto several = losses("run");
    ASSERT_EQ(several.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(std::atof(&several[i][7]), std::atof(&one[i][7]), 1e-5) << i;
  }
}

// Sums are taken within hosts first: what goes over the cable does not grow with the ranks of a host.
TEST_F(HostsTest, TwoRanksOnEachOfTwoHostsSendNoMoreThanOne) {
  const Words job{"--set", "train.steps=12", "--set", "train.batch=12", "--set", "model.width=128"};
  int64_t sent[3] = {};
  for (const int ranks : {1, 2}) {
    make_hosts(2);
    fs::remove_all(path("run"));
    for (Program& one : train_everywhere(job, ranks)) {
      const Outcome outcome = finish(one);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
    sent[ranks] = hosts_->sent_bytes(1);
  }
  EXPECT_GT(sent[1], 1'000'000);
  EXPECT_LT(sent[2], sent[1] * 5 / 4);
}

// What the rank of a host was in when it left, and why: which another rank may have heard first and told it.
testing::Matcher<const std::string&> left_because(int rank, int world, const std::string& why) {
  return testing::ContainsRegex(
      fmt::format("\\[rank {} of {}\\] [a-z_]+ \\(group world[^)]*\\): (rank [0-9]+ \\(pid [0-9]+ at [^)]+\\) gave up: "
                  ")?{} after [0-9.]+ s",
                  rank, world, why));
}

TEST_F(HostsTest, ACutCableEndsTheJobOnBothSidesAndTheLostHostIsNamed) {
  make_hosts(3);
  std::vector<Program> parts = train_everywhere(kForEver);
  ASSERT_TRUE(steps_are_done(parts[0])) << err_of(parts[0]);
  hosts_->cut_cable(2);
  const std::string lost = "node 2 \\('node2' on host2\\), rank 2, has not been heard of for [2-9]\\.[0-9] s";
  for (const int host : {0, 1}) {
    const Outcome outcome = finish(parts[static_cast<size_t>(host)]);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(error_line(outcome), testing::ContainsRegex(lost));
    EXPECT_THAT(outcome.err, left_because(host, 3, lost));
  }
  const Outcome alone = finish(parts[2]);
  EXPECT_EQ(alone.code, 3);
  EXPECT_THAT(alone.err,
              left_because(2, 3,
                           "node 2 \\(host2\\) is cut off: the scheduler at 10.66.0.10:8118 has not answered "
                           "for 2 s, and all ranks here have waited for others as long"));
  for (int host = 0; host < 3; ++host) EXPECT_THAT(hosts_->processes(host), testing::IsEmpty());
}

TEST_F(HostsTest, AHostThatIsSwitchedOffIsNamedByAll) {
  make_hosts(3);
  std::vector<Program> parts = train_everywhere(kForEver);
  ASSERT_TRUE(steps_are_done(parts[0])) << err_of(parts[0]);
  hosts_->power_off(1);
  const std::string lost = "node 1 \\('node1' on host1\\), rank 1, has not been heard of for [2-9]\\.[0-9] s";
  for (const int host : {0, 2}) {
    const Outcome outcome = finish(parts[static_cast<size_t>(host)]);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(error_line(outcome), testing::ContainsRegex(lost));
    EXPECT_THAT(outcome.err, left_because(host, 3, lost));
  }
  EXPECT_EQ(finish(parts[1]).code, 128 + SIGKILL);
  for (int host = 0; host < 3; ++host) EXPECT_THAT(hosts_->processes(host), testing::IsEmpty());
}

TEST_F(HostsTest, AKilledRankIsNamedWithItsHostAndLogByTheRanksOfOtherHosts) {
  make_hosts(2);
  std::vector<Program> parts = train_everywhere(kForEver, 2);
  ASSERT_TRUE(steps_are_done(parts[0])) << err_of(parts[0]);
  const std::vector<int> there = workers_of(parts[1]);  // ranks 2 and 3
  ASSERT_EQ(there.size(), 2) << err_of(parts[1]);
  const int victim = there[static_cast<size_t>(::getpid()) % 2];
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  const double begin = now_s();
  EXPECT_TRUE(soon([&] { return workers_of(parts[0]).empty() && workers_of(parts[1]).empty(); }));
  fmt::print("after {:.0f} ms no other rank was left\n", 1e3 * (now_s() - begin));
  const std::string who = fmt::format("rank [23] \\(pid {}( at host1)?\\)", victim);
  for (Program& one : parts) {
    const Outcome outcome = finish(one);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(error_line(outcome),
                testing::ContainsRegex(who + " was killed by signal 9 .*its log: run/logs/worker_[23].log"));
  }
  // Whichever noticed first: the closed connection, the launcher, or the other rank of the host, which says of whom.
  EXPECT_THAT(err_of(parts[0]), testing::ContainsRegex("\\[rank [01] of 4\\] [a-z_]+ \\(group world[^)]*\\): "
                                                       "(rank [01] \\(pid [0-9]+ at host0\\) gave up: )?" +
                                                       who));
}

TEST_F(HostsTest, WithoutALostHostTheJobGoesOnWhenItMay) {
  make_hosts(3);
  const Words elastic{
      "--set", "train.steps=300", "--set", "train.batch=12", "--set", "train.save_every=1", "--heartbeat",
      "2",     "--restarts",      "1",     "--nnodes",       "2:3"};
  std::vector<Program> parts = train_everywhere(elastic);
  ASSERT_TRUE(steps_are_done(parts[0])) << err_of(parts[0]);
  hosts_->power_off(1);
  finish(parts[1]);
  for (const size_t host : {0U, 2U}) {
    const Outcome outcome = finish(parts[host]);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                testing::HasSubstr(
                    "the job starts again (1 of 1): node 1 ('node1' on host1), rank 1, has not been heard of for "));
  }
  EXPECT_EQ(fs::read_symlink(path("run/checkpoints/latest")).string(), "step-000300");
}

TEST_F(HostsTest, WithASchedulerOfItsOwnTheJobGoesOnWithoutTheHostOfRankZero) {
  make_hosts(4);
  const std::string at = Hosts::address(3);
  const Words elastic{"--world", "2:3", "--restarts", "1", "--heartbeat", "2", "--secret-file", "secret"};
  Words words{"scheduler", "--address", at};
  append(words, elastic);
  Program sched = begin("scheduler", words, {}, hosts_->entry(3));
  std::vector<Program> parts;
  for (int host = 0; host < 3; ++host) {
    Words node{"train",
               "gpt.toml",
               "--quiet",
               "--out",
               "run",
               "-n",
               "1",
               "--master",
               at,
               "--node-id",
               std::to_string(host),
               "--set",
               "train.steps=300",
               "--set",
               "train.batch=12",
               "--set",
               "train.save_every=1"};
    append(node, elastic);
    parts.push_back(begin(Hosts::name(host), node, kTcp, hosts_->entry(host)));
  }
  ASSERT_TRUE(steps_are_done(parts[0])) << err_of(parts[0]) << err_of(sched);
  hosts_->power_off(0);
  finish(parts[0]);
  for (const size_t host : {1U, 2U}) {
    const Outcome outcome = finish(parts[host]);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(
        outcome.err,
        testing::HasSubstr("the job starts again (1 of 1): node '0' on host0, rank 0, has not been heard of for "));
  }
  EXPECT_EQ(finish(sched).code, 0);
  EXPECT_EQ(fs::read_symlink(path("run/checkpoints/latest")).string(), "step-000300");
}

TEST_F(HostsTest, APartitionThatHealsInTimeIsSurvived) {
  make_hosts(2);
  std::vector<Program> parts = train_everywhere(kForEver);
  ASSERT_TRUE(steps_are_done(parts[0])) << err_of(parts[0]);
  hosts_->cut_cable(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // a quarter of what counts as lost
  hosts_->plug_cable(1);
  const size_t before = losses("run").size();
  EXPECT_TRUE(soon([&] { return losses("run").size() >= before + 5 || !is_running(parts[0]); }));
  ::kill(parts[0].pid, SIGINT);
  for (Program& one : parts) {
    const Outcome outcome = finish(one);
    EXPECT_EQ(outcome.code, 130) << outcome.err;
  }
}

// As a test that died would leave them.
TEST_F(HostsTest, WhatADeadTestLeftIsRemoved) {
  const pid_t child = ::fork();
  if (child == 0) {
    new Hosts({.count = 1});  // never destroyed
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const std::string left = fmt::format("/run/netns/trireme-{}-host0", child);
  ASSERT_TRUE(fs::exists(left));
  EXPECT_EQ(Hosts::why_not(), "");
  EXPECT_FALSE(fs::exists(left));
}

}  // namespace
}  // namespace trireme::cli::hosts_test

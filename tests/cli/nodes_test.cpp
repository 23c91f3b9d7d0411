// Jobs of several nodes, all on this host's loopback: a scheduler and agents started by hand, and one `trireme launch`
// a node.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "tests/cli/nodes.h"
#include "trireme/launch/rank/rank_info.h"

namespace trireme::cli::nodes_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kUntilGo = "mkdir -p up && touch up/$RANK; while ! test -e go; do sleep 0.02; done";

TEST_F(NodesTest, Section1_8_Item1_EightWorkersAndASchedulerFormACluster) {
  Program sched = scheduler(8, {"--log-dir", "logs/of/scheduler"});
  std::vector<Program> agents;
  for (int i = 0; i < 8; ++i) {
    agents.push_back(agent(fmt::format("agent{}", i), 8, fmt::format("echo $WORLD_SIZE > seen_$RANK; {}", kUntilGo)));
  }
  EXPECT_TRUE(soon([&] { return files_in("up") == 8; }));
  EXPECT_EQ(read(fmt::format("/proc/{0}/task/{0}/children", sched.pid)), "");  // it starts no step, and nothing else
  touch("go");
  for (Program& one : agents) EXPECT_EQ(finish(one).code, 0);
  const Outcome outcome = finish(sched);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(read(path(fmt::format("seen_{}", rank))), "8\n");
  EXPECT_THAT(read(path("logs/of/scheduler/scheduler.log")),
              AllOf(HasSubstr("rank 0 for now -> rank "), HasSubstr("the cluster is complete: 8 ranks")));
}

TEST_F(NodesTest, Section1_8_Item2_ASurplusWorkerIsRefusedAndTheOthersGoOn) {
  Program sched = scheduler(3);
  std::vector<Program> agents;
  for (int i = 0; i < 3; ++i) agents.push_back(agent(fmt::format("agent{}", i), 3, kUntilGo));
  ASSERT_TRUE(soon([&] { return files_in("up") == 3; }));
  Program fourth = agent("fourth", 3, "true");
  const Outcome refused = finish(fourth);
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(error_line(refused),
            fmt::format("launch: the scheduler at {} has no place for this node: 3 of the job's 3 ranks are "
                        "taken by 3 nodes, so there is no place for 1 more",
                        master()));
  touch("go");
  for (Program& one : agents) EXPECT_EQ(finish(one).code, 0);
  EXPECT_EQ(finish(sched).code, 0);
}

TEST_F(NodesTest, Section1_8_Item2_TooFewWorkersFailWhenTheWindowCloses) {
  Program sched = scheduler(3, {"--window", "2"});
  std::vector<Program> agents;
  for (int i = 0; i < 2; ++i) agents.push_back(agent(fmt::format("agent{}", i), 3, "touch started"));
  for (Program& one : agents) {
    const Outcome outcome = finish(one);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(error_line(outcome), HasSubstr("waiting for 1 of 3 ranks when the window of 2.0 s closed: "));
  }
  EXPECT_EQ(finish(sched).code, 3);
  EXPECT_FALSE(fs::exists(path("started")));
}

TEST_F(NodesTest, Section1_8_Item3_AnotherWorldSizeFailsToJoin) {
  Program sched = scheduler(2);
  Program wrong = agent("wrong", 3, "true");
  const Outcome refused = finish(wrong);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(error_line(refused),
              HasSubstr("it was started for a job of 3 ranks, but this scheduler's job has 2; give both the same"));
  Program first = agent("first", 2, "true");
  Program second = agent("second", 2, "true");
  EXPECT_EQ(finish(first).code, 0);
  EXPECT_EQ(finish(second).code, 0);
  EXPECT_EQ(finish(sched).code, 0);
}

TEST_F(NodesTest, Section1_8_Item4_LogsAppearInAFolderThatWasMissingAndJoinWaitsForTheWorkers) {
  const Outcome good = run({"launch", "--nnodes", "1", "-n", "8", "--log-dir", "a/b/c", "--", "sh", "-c",
                            "echo rank $RANK; sleep 0.1; touch done_$RANK"});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_TRUE(fs::exists(path("a/b/c/scheduler.log")));
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(read(path(fmt::format("a/b/c/worker_{}.log", rank))), fmt::format("rank {}\n", rank));
    EXPECT_TRUE(fs::exists(path(fmt::format("done_{}", rank))));
  }
  const Outcome bad = run({"launch", "--nnodes", "1", "-n", "3", "--log-dir", "d", "--", "sh", "-c",
                           "test $RANK != 1 || exit 9; sleep 60"});
  EXPECT_EQ(bad.code, 9);
  EXPECT_THAT(error_line(bad),
              testing::MatchesRegex("rank 1 \\(pid [0-9]+\\) ended with exit code 9 .*d/worker_1.log"));
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(NodesTest, ANodeThatCannotStartItsRanksTellsTheOthersWhy) {
  for (const int of : {0, 1}) {
    const std::string logs = fmt::format("logs{}", of);
    fs::create_directories(path(fmt::format("{}/worker_{}.log", logs, 2 * of + 1)));  // in place of a file
    std::vector<Program> nodes;
    for (const int rank : {0, 1})
      nodes.push_back(node(rank, 2, {"sleep", "60"}, rank == of ? Words{"--log-dir", logs} : Words{}));
    for (Program& one : nodes) {
      const Outcome outcome = finish(one);
      EXPECT_EQ(outcome.code, 3) << outcome.err;
      EXPECT_THAT(outcome.err, AllOf(HasSubstr(fmt::format("node {} (", of)), HasSubstr("cannot write the log"))) << of;
    }
    EXPECT_THAT(left_over(), IsEmpty());
    port_ = free_port();
  }
}

TEST_F(NodesTest, Section1_8_Item4_WithoutJoinItReturnsAtOnce) {
  const Outcome outcome = run({"launch", "--no-join", "-n", "2", "--log-dir", "logs", "--", "sh", "-c", kUntilGo});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::MatchesRegex("started as process [0-9]+; its logs: logs\n"));
  EXPECT_TRUE(soon([&] { return files_in("up") == 2; }));
  touch("go");
  EXPECT_TRUE(soon([&] { return left_over().empty(); }));
  EXPECT_THAT(error_line(run({"launch", "--no-join", "-n", "2", "true"})), HasSubstr("--no-join needs --log-dir"));
}

// Waits in a folder of its own until it may go on.
std::string until_go(const std::string& folder) {
  return fmt::format("mkdir -p {0}/up && touch {0}/up/$RANK; while ! test -e {0}/go; do sleep 0.02; done", folder);
}

// Two jobs of which a node is stopped, first that without heartbeats: when the other has ended, that one has had the
// longer time to.
TEST_F(NodesTest, Section1_8_Item5_AStoppedNodeEndsTheJobUnlessHeartbeatsAreOff) {
  struct StoppedJob {
    Program sched, stopped, other;
  };
  const auto stop_one = [&](const std::string& name, const std::string& heartbeat) {
    StoppedJob job{.sched = scheduler("2", {"--heartbeat", heartbeat}, 0, name + "_scheduler"),
                   .stopped = agent(name + "_stopped", 2, until_go(name), {"--node-id", "1"}),
                   .other = agent(name + "_other", 2, until_go(name), {"--node-id", "0"})};
    EXPECT_TRUE(soon([&] { return files_in(name + "/up") == 2; }));
    EXPECT_EQ(::kill(job.stopped.pid, SIGSTOP), 0);
    return job;
  };
  StoppedJob without = stop_one("without", "0");
  StoppedJob with = stop_one("with", "3");
  const Outcome ended = finish(with.other);
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(error_line(ended), AllOf(HasSubstr("node '1' on "), HasSubstr("rank 1, has not been heard of for ")));
  ::kill(with.stopped.pid, SIGCONT);
  EXPECT_NE(finish(with.stopped).code, 0);
  EXPECT_EQ(finish(with.sched).code, 3);

  EXPECT_TRUE(is_running(without.other));
  EXPECT_TRUE(is_running(without.sched));
  ::kill(without.stopped.pid, SIGCONT);
  touch("without/go");
  EXPECT_EQ(finish(without.other).code, 0);
  EXPECT_EQ(finish(without.stopped).code, 0);
  EXPECT_EQ(finish(without.sched).code, 0);
}

TEST_F(NodesTest, Section1_8_Item5_AStoppedWorkerEndsTheJobUnlessHeartbeatsAreOff) {
  const auto stop_one = [&](const std::string& name, const std::string& heartbeat) {
    Program job =
        begin(name, {"launch", "--nnodes", "1", "-n", "2", "--log-dir", name + "/logs", "--heartbeat", heartbeat, "--",
                     "sh", "-c", fmt::format("echo $$ > {}/pid_$RANK; {}", name, until_go(name))});
    EXPECT_TRUE(soon([&] { return files_in(name + "/up") == 2; }));
    const int worker = std::atoi(read(path(name + "/pid_1")).c_str());
    EXPECT_GT(worker, 0);
    EXPECT_EQ(::kill(worker, SIGSTOP), 0);
    return std::pair(std::move(job), worker);
  };
  fs::create_directories(path("without"));
  fs::create_directories(path("with"));
  auto [without, sleeper] = stop_one("without", "0");
  auto [with, ended_one] = stop_one("with", "3");
  const Outcome ended = finish(with);
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(error_line(ended),
              testing::ContainsRegex("rank 1 \\(pid [0-9]+\\) has been stopped by a signal for [0-9.]+ s"));
  EXPECT_TRUE(is_running(without));
  ::kill(sleeper, SIGCONT);
  touch("without/go");
  EXPECT_EQ(finish(without).code, 0);
}

TEST_F(NodesTest, Section1_8_Item7_AllGatherOfTheRanksOnTwoNodes) {
  const Words program{fs::read_symlink("/proc/self/exe").string(), "--gtest_filter=NodesWorker.DISABLED_GathersRanks",
                      "--gtest_also_run_disabled_tests", "--gtest_brief=1"};
  Program zero = node(0, 2, program, {"--log-dir", "logs"});
  Program one = node(1, 2, program, {"--log-dir", "logs"});
  const Outcome first = finish(zero);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(finish(one).code, 0);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(read(path(fmt::format("logs/worker_{}.log", rank))), HasSubstr("gathered [[0],[1],[2],[3]]\n"));
  }
}

TEST(NodesWorker, DISABLED_GathersRanks) {
  const launch::RankInfo info = launch::find_rank();
  const auto world = launch::join(info);
  float own = static_cast<float>(info.rank);
  std::vector<float> all(static_cast<size_t>(info.world), -1);
  world->all()
      .all_gather({reinterpret_cast<std::byte*>(&own), {DType::kF32, Shape{1, 1}}},
                  {reinterpret_cast<std::byte*>(all.data()), {DType::kF32, Shape{info.world, 1}}})
      .wait();
  std::string text;
  for (const float rank : all) text += fmt::format("{}[{}]", text.empty() ? "" : ",", rank);
  fmt::print("gathered [{}]\n", text);
}

TEST_F(NodesTest, TheFirstCauseIsShownOnceOnEveryNodeAndIsTheExitCode) {
  Program zero = node(0, 2, {"sh", "-c", "sleep 60"}, {"--log-dir", "logs"});
  Program one = node(1, 2, {"sh", "-c", "test $RANK != 3 || exit 7; sleep 60"}, {"--log-dir", "logs"});
  for (Program* program : {&zero, &one}) {
    const Outcome outcome = finish(*program);
    EXPECT_EQ(outcome.code, 7);
    EXPECT_THAT(error_line(outcome),
                testing::MatchesRegex("rank 3 \\(pid [0-9]+\\) ended with exit code 7 .*logs/worker_3.log"));
  }
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(NodesTest, WithoutNodeRanksTheOneThatCanServesTheSchedulerAndNodesMayDiffer) {
  std::vector<Program> nodes;
  for (const char* workers : {"3", "2", "1"}) {
    nodes.push_back(begin(workers, {"launch", "--nnodes", "3", "--world", "6", "--node-id", workers, "--master",
                                    master(), "-n", workers, "--secret-file", "secret", "--log-dir", "logs", "--", "sh",
                                    "-c", "echo $LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK"}));
  }
  for (Program& one : nodes) {
    const Outcome outcome = finish(one);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  // Agents on one host are one node; ids that are numbers give the order.
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(read(path(fmt::format("logs/worker_{}.log", rank))), fmt::format("{} of 6 on 0\n", rank));
  }
}

TEST_F(NodesTest, RanksOfEitherNodeGetTorchrunsVariables) {
  const Words program{"sh", "-c",
                      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $TRIREME_SECRET; "
                      "test \"$MASTER_PORT\" -gt 0; stat -c %a $TRIREME_SECRET_FILE"};
  Program zero = node(0, 2, program, {"--log-dir", "logs", "--tail", "1"});
  Program one = node(1, 2, program, {"--log-dir", "logs", "--tail", "2,3"});
  EXPECT_EQ(finish(zero).out, "[1] 1 4 1 2 0 127.0.0.1\n[1] 600\n");
  const std::string out = finish(one).out;
  EXPECT_THAT(out, AllOf(HasSubstr("[2] 2 4 0 2 1 127.0.0.1\n"), HasSubstr("[3] 3 4 1 2 1 127.0.0.1\n")));
}

TEST_F(NodesTest, TrainOnTwoNodesTrainsAsOnOne) {
  write_gpt();
  Words asked;  // of cuts
  const auto train = [&](const std::string& out, const Words& more) {
    Words words{"train", "gpt.toml", "--out", out, "--quiet"};
    append(words, asked);
    append(words, more);
    return words;
  };
  const auto loss = [](const std::string& out) { return out.substr(out.find("Training loss"), 40); };
  for (const Words& planned : {Words{}, Words{"--auto", "--search", "exact", "--tp", "2"}}) {
    asked = planned;
    const Outcome one = run(train("one", {"-n", "2"}));
    ASSERT_EQ(one.code, 0) << one.err;
    std::vector<Program> nodes;
    for (const char* rank : {"0", "1"}) {
      nodes.push_back(
          begin(fmt::format("node{}", rank), train("two", {"-n", "1", "--nnodes", "2", "--node-rank", rank, "--master",
                                                           master(), "--secret-file", "secret"})));
    }
    const Outcome zero = finish(nodes[0]);
    EXPECT_EQ(zero.code, 0) << zero.err;
    EXPECT_EQ(finish(nodes[1]).code, 0);
    EXPECT_EQ(loss(zero.out), loss(one.out));
    const bool says_plan = zero.out.find("plan of the exact search for 2 ranks") != std::string::npos;
    EXPECT_EQ(says_plan, !planned.empty()) << zero.out;
  }
  asked.clear();
  EXPECT_THAT(error_line(run(train("x", {"-n", "3", "--nnodes", "2", "--master", master()}))),
              HasSubstr("does not divide over 6 ranks"));
}

TEST_F(NodesTest, ASignalToOneNodeEndsTheJobInOrderOnAll) {
  const std::string script = std::string("trap 'touch bye_$RANK; exit 0' INT; ") + kUntilGo;
  Program zero = node(0, 2, {"sh", "-c", script}, {"--log-dir", "logs"}, 1);
  Program one = node(1, 2, {"sh", "-c", script}, {"--log-dir", "logs"}, 1);
  ASSERT_TRUE(soon([&] { return files_in("up") == 2; }));
  ::kill(one.pid, SIGINT);
  for (Program* program : {&zero, &one}) {
    const Outcome outcome = finish(*program);
    EXPECT_EQ(outcome.code, 130);
    EXPECT_THAT(outcome.err, testing::EndsWith("interrupted by SIGINT; all ranks ended cleanly\n"));
  }
  EXPECT_TRUE(fs::exists(path("bye_0")) && fs::exists(path("bye_1")));
}

// More strangers than the scheduler may have descriptors, which say nothing: it stays reachable, while they are there
// and after.
TEST_F(NodesTest, StrangersCannotMakeTheSchedulerDeaf) {
  const auto few_files = [] {
    const rlimit few{.rlim_cur = 100, .rlim_max = 100};
    return ::setrlimit(RLIMIT_NOFILE, &few) == 0;
  };
  Program sched = begin(
      "scheduler",
      {"scheduler", "--world", "1", "--port", std::to_string(port_), "--secret-file", "secret", "--log-dir", "logs"},
      {}, few_files);
  ASSERT_TRUE(soon([&] { return out_of(sched).find("waiting at") != std::string::npos; })) << err_of(sched);
  std::vector<int> strangers;
  for (int i = 0; i < 400; ++i) {
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<uint16_t>(port_)),
                        .sin_addr = {htonl(INADDR_LOOPBACK)},
                        .sin_zero = {}};
    strangers.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(strangers.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    (void)!::send(strangers.back(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33, MSG_NOSIGNAL);
  }
  Program only = agent("only", 1, "echo let in");
  EXPECT_EQ(finish(only).out, "let in\n");
  EXPECT_EQ(finish(sched).code, 0);
  EXPECT_THAT(read(path("logs/scheduler.log")),
              HasSubstr("ended a connection that did not prove the job's secret in time"));
  for (const int fd : strangers) ::close(fd);
}

TEST_F(NodesTest, ASignalToOneRankEndsTheJobInOrderOnAllNodes) {
  write_gpt();
  std::vector<Program> nodes;
  for (const char* rank : {"0", "1"}) {
    nodes.push_back(begin(
        rank, {"train", "gpt.toml", "--quiet", "--out", "run", "--set", "train.steps=10000000", "--nnodes", "2",
               "--node-rank", rank, "--master", master(), "-n", "1", "--secret-file", "secret", "--restarts", "1"}));
  }
  ASSERT_TRUE(soon([&] { return read(path("run/metrics.jsonl")).find("\"step\":2") != std::string::npos; }))
      << err_of(nodes[0]);
  const int rank = std::atoi(read(fmt::format("/proc/{0}/task/{0}/children", nodes[1].pid)).c_str());
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGTERM);
  for (Program& program : nodes) {
    const Outcome outcome = finish(program);
    EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("interrupted by SIGTERM"));
  }
  EXPECT_THAT(out_of(nodes[0]), HasSubstr("everything is saved in run/checkpoints"));
}

TEST_F(NodesTest, ANodeThatIsKilledEndsTheJobOnTheOthers) {
  Program sched = scheduler(2);
  Program lost = agent("lost", 2, kUntilGo, {"--node-id", "0"});
  Program other = agent("other", 2, kUntilGo, {"--node-id", "1"});
  ASSERT_TRUE(soon([&] { return files_in("up") == 2; }));
  ::kill(lost.pid, SIGKILL);
  finish(lost);
  const Outcome outcome = finish(other);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(error_line(outcome), HasSubstr("rank 0, has not been heard of for "));
  EXPECT_EQ(finish(sched).code, 3);
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(NodesTest, AnAgentWaitsForASchedulerThatComesLaterAndTheJobOutlivesItsDeath) {
  Program zero = agent("zero", 2, kUntilGo, {"--node-id", "0"});
  EXPECT_TRUE(soon([&] {
    return err_of(zero).find("which does not answer yet (nobody answers there)") != std::string::npos;
  })) << err_of(zero);
  const int port = port_;
  Program sched = scheduler(2, {}, port);
  Program one = agent("one", 2, kUntilGo, {"--node-id", "1"});
  ASSERT_TRUE(soon([&] { return files_in("up") == 2; }));

  ::kill(sched.pid, SIGKILL);
  finish(sched);
  EXPECT_TRUE(soon([&] { return err_of(zero).find("the job goes on, and it is tried again") != std::string::npos; }));
  Program again = scheduler(2, {}, port);
  EXPECT_TRUE(soon([&] {
    return err_of(zero).find("is back") != std::string::npos && err_of(one).find("is back") != std::string::npos;
  }));
  EXPECT_TRUE(is_running(zero) && is_running(one));
  touch("go");
  EXPECT_EQ(finish(zero).code, 0);
  EXPECT_EQ(finish(one).code, 0);
  EXPECT_EQ(finish(again).code, 0);
}

TEST_F(NodesTest, ASchedulerThatHangsIsLeftAndTakenUpAgain) {
  Program sched = scheduler(1);
  Program only = agent("only", 1, kUntilGo);
  ASSERT_TRUE(soon([&] { return files_in("up") == 1; }));
  ::kill(sched.pid, SIGSTOP);
  EXPECT_TRUE(soon([&] { return err_of(only).find("has gone (it has not answered for 10.0 s)") != std::string::npos; }))
      << err_of(only);
  ::kill(sched.pid, SIGCONT);
  EXPECT_TRUE(soon([&] { return err_of(only).find("is back") != std::string::npos; })) << err_of(only);
  touch("go");
  EXPECT_EQ(finish(only).code, 0);
  EXPECT_EQ(finish(sched).code, 0);
}

TEST_F(NodesTest, ASchedulerRestartedWithOtherOptionsDoesNotEndTheJob) {
  Program sched = scheduler(1);
  Program only = agent("only", 1, kUntilGo);
  ASSERT_TRUE(soon([&] { return files_in("up") == 1; }));
  ::kill(sched.pid, SIGKILL);
  finish(sched);
  Program other = scheduler(2, {}, port_);
  EXPECT_TRUE(soon([&] {
    return err_of(only).find("this scheduler's job has 2; give both the same); the job goes on") != std::string::npos;
  })) << err_of(only);
  touch("go");
  EXPECT_EQ(finish(only).code, 0);
  ::kill(other.pid, SIGKILL);
  finish(other);
}

// A day before and a day behind: neither proofs nor heartbeats speak of time.
TEST_F(NodesTest, NodesWhoseClocksDifferMeetAndStay) {
  const auto skewed = [](const char* seconds) {
    return Words{"LD_PRELOAD=" TRIREME_CLOCK_SKEW, fmt::format("CLOCK_SKEW_S={}", seconds),
                 "ASAN_OPTIONS=verify_asan_link_order=0"};
  };
  EXPECT_GT(std::atol(run_shell("date +%s", skewed("86400")).out.c_str()), ::time(nullptr) + 80'000);
  Program sched = scheduler(2, {"--heartbeat", "1"});
  std::vector<Program> agents;
  for (const char* seconds : {"86400", "-86400"}) {
    const std::string name = fmt::format("agent{}", agents.size());
    agents.push_back(begin(name,
                           {"launch", "--master", master(), "--world", "2", "-n", "1", "--secret-file", "secret",
                            "--heartbeat", "1", "--", "sh", "-c", "sleep 2.5; touch lived_$RANK"},
                           skewed(seconds)));
  }
  for (Program& one : agents) {
    const Outcome outcome = finish(one);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_EQ(finish(sched).code, 0);
  EXPECT_TRUE(fs::exists(path("lived_0")) && fs::exists(path("lived_1")));
}

// The clock of another machine that counts from its start: the kernel gives the agent one of its own, where it may.
TEST_F(NodesTest, NodesThatWereBootedAtOtherTimesMeetAndStay) {
  if (run_shell("unshare -T --monotonic 1000000 --boottime 1000000 true").code != 0)
    GTEST_SKIP() << "no time namespaces here";
  Program sched = scheduler(1, {"--heartbeat", "1"});
  const Outcome outcome = run_shell(
      fmt::format("exec unshare -T --monotonic 1000000 --boottime 1000000 {} launch --master {} --world 1 -n 1 "
                  "--secret-file secret --heartbeat 1 -- sh -c 'sleep 2.5; touch lived'",
                  TRIREME_PROGRAM, master()));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(finish(sched).code, 0);
  EXPECT_TRUE(fs::exists(path("lived")));
}

}  // namespace
}  // namespace trireme::cli::nodes_test

// What cannot be a job of several nodes is refused, at once and with the reason.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include "tests/cli/nodes.h"

namespace trireme::cli::nodes_refusals_test {
namespace {

using testing::HasSubstr;

TEST_F(NodesTest, AWrongSecretIsRefused) {
  ASSERT_EQ(run({"launch", "--make-secret", "other"}).code, 0);
  Program sched = scheduler(1);
  Program wrong =
      begin("wrong", {"launch", "--master", master(), "--world", "1", "-n", "1", "--secret-file", "other", "true"});
  const Outcome outcome = finish(wrong);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(error_line(outcome),
            fmt::format("launch: cannot join the scheduler at {}: it has a different secret from this node's; give "
                        "both the same --secret-file, or the same TRIREME_SECRET_FILE or TRIREME_SECRET",
                        master()));
  Program right = agent("right", 1, "true");
  EXPECT_EQ(finish(right).code, 0);
  EXPECT_EQ(finish(sched).code, 0);
}

// The node that waits is told too why the other does not come.
TEST_F(NodesTest, AWrongSecretOfAnotherNodeIsSaidWhereItIsMissed) {
  ASSERT_EQ(run({"launch", "--make-secret", "other"}).code, 0);
  Program sched = scheduler(2, {"--window", "5"});
  Program right = agent("right", 2, "true");
  Program wrong =
      begin("wrong", {"launch", "--master", master(), "--world", "2", "-n", "1", "--secret-file", "other", "true"});
  EXPECT_EQ(finish(wrong).code, 2);
  for (Program* program : {&right, &sched}) {
    const Outcome outcome = finish(*program);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(error_line(outcome), HasSubstr("; 1 connection was refused because the job's secret was not proven: "
                                               "has every node the same --secret-file?"));
  }
}

TEST_F(NodesTest, AJobOnSeveralNodesWithoutASecretIsRefusedWithTheCommandThatMakesOne) {
  const Words words{"launch", "--nnodes", "2", "--node-rank", "0", "--master", master(), "-n", "1", "true"};
  const Outcome none = run(words);
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(error_line(none), HasSubstr("make one with 'trireme launch --make-secret job.secret'"));
  EXPECT_THAT(error_line(run({"scheduler", "--world", "1"})), HasSubstr("trireme launch --make-secret"));
  ::chmod(path("secret").c_str(), 0640);
  EXPECT_EQ(error_line(run({"scheduler", "--world", "1", "--secret-file", "secret"})),
            "job secret: 'secret' has mode 0640, so others can read it; make it 0600");
  EXPECT_THAT(error_line(run({"launch", "--make-secret", "secret"})), HasSubstr("'secret' exists already"));
  // From the environment, and seen by none of the workers.
  const std::string hex = read(path("secret"));
  const Outcome outcome = run({"launch", "--nnodes", "1", "-n", "1", "--", "sh", "-c", "test -z \"$TRIREME_SECRET\""},
                              {"TRIREME_SECRET=" + hex});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(NodesTest, WhatCannotWorkIsSaidAtOnce) {
  Program sched = scheduler(1);
  const Words common{"--secret-file", "secret", "-n", "1", "true"};
  const auto error = [&](Words words) {
    append(words, common);
    words.insert(words.begin(), "launch");
    const Outcome outcome = run(words);
    EXPECT_NE(outcome.code, 0);
    return error_line(outcome);
  };
  EXPECT_EQ(error({"--nnodes", "2", "--node-rank", "0", "--master", master()}),
            fmt::format(
                "scheduler: cannot listen at {} (Address already in use); name another port, or end what listens there",
                master()));
  EXPECT_THAT(error({"--nnodes", "2", "--node-rank", "1", "--master", "no-such-host.invalid"}),
              HasSubstr("host 'no-such-host.invalid' cannot be found ("));
  EXPECT_THAT(error({"--nnodes", "2", "--node-rank", "0", "--master", "192.0.2.1"}),
              HasSubstr("is not an address of this host"));
  EXPECT_THAT(error({"--nnodes", "2", "--node-rank", "2", "--master", master()}),
              HasSubstr("node ranks go from 0 to 1"));
  EXPECT_THAT(error({"--nnodes", "2"}), HasSubstr("--master is missing"));
  EXPECT_THAT(error({"--nnodes", "1", "--world", "3"}),
              HasSubstr("--world 3 with --nnodes 1, whose only node starts 1 rank (-n): these are all there can be"));
  EXPECT_THAT(error({"--master", master()}), HasSubstr("--world is missing"));
  EXPECT_THAT(error({"--nnodes", "2", "--master", "127.0.0.1:99999"}),
              HasSubstr("the port must be a number from 1 to 65535"));
  EXPECT_THAT(error({"--nnodes", "2", "--node-rank", "1", "--master", "127.0.0.1:1", "--window", "0.5"}),
              HasSubstr("--window 0.5"));
  ::kill(sched.pid, SIGTERM);
  finish(sched);
}

TEST_F(NodesTest, ANodeIdGivenTwiceIsRefused) {
  Program zero = node(0, 3, {"true"}, {"--log-dir", "logs"}, 1);
  Program one = node(1, 3, {"true"}, {}, 1);
  EXPECT_TRUE(soon([&] { return read(path("logs/scheduler.log")).find("node 1 ('node1'") != std::string::npos; }));
  const Outcome twin = run({"launch", "--nnodes", "3", "--node-rank", "1", "--master", master(), "-n", "1",
                            "--secret-file", "secret", "true"});
  EXPECT_EQ(twin.code, 2);
  EXPECT_THAT(error_line(twin), HasSubstr("its id 'node1' is taken by a node on "));
  Program two = begin("node2", {"launch", "--nnodes", "3", "--node-rank", "2", "--master", master(), "-n", "1",
                                "--secret-file", "secret", "true"});
  for (Program* program : {&zero, &one, &two}) EXPECT_EQ(finish(*program).code, 0);
}

}  // namespace
}  // namespace trireme::cli::nodes_refusals_test

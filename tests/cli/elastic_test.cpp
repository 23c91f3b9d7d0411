// Jobs that start again after ranks or nodes are lost, with as many ranks or fewer, and go on from their newest
// checkpoint.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "tests/cli/nodes.h"
#include "trireme/ckpt/checkpoint.h"

namespace trireme::cli::elastic_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class ElasticTest : public NodesTest {
 protected:
  ElasticTest() { write_gpt(); }

  Words job(const std::string& out, const Words& more) const {
    Words words{"train",          "gpt.toml", "--quiet",           "--out", out, "--set", "train.batch=12", "--set",
                "train.steps=80", "--set",    "train.save_every=1"};
    append(words, more);
    return words;
  }
  int saved_steps() const {
    std::error_code none;
    const std::string newest = fs::read_symlink(path("run/checkpoints/latest"), none).string();
    return newest.starts_with("step-") ? std::atoi(newest.c_str() + 5) : 0;
  }
  std::vector<int> workers_of(const Program& program) const {
    std::stringstream text(read(fmt::format("/proc/{0}/task/{0}/children", program.pid)));
    std::vector<int> out;
    for (int process = 0; text >> process;) out.push_back(process);
    return out;
  }
  // Starts it, lets it save some steps, and kills the last of its ranks.
  Program begin_and_kill_a_rank(const std::string& name, const Words& words, size_t ranks) {
    Program only = begin(name, job("run", words));
    EXPECT_TRUE(soon([&] { return saved_steps() >= 3 || !is_running(only); }));
    const std::vector<int> workers = workers_of(only);
    EXPECT_EQ(workers.size(), ranks) << err_of(only);
    if (workers.size() == ranks) {
      EXPECT_EQ(::kill(workers.back(), SIGKILL), 0);
    }
    return only;
  }
  // With sums that do not depend on how many ranks there are.
  void expect_as_undisturbed(Words more) {
    append(more, {"-n", "2"});
    ASSERT_EQ(run(job("whole", more)).code, 0);
    const ckpt::Reader one(path("whole/checkpoints"));
    const ckpt::Reader other(path("run/checkpoints"));
    EXPECT_EQ(other.step(), 80);
    for (const std::string& name : one.names()) {
      EXPECT_TRUE(std::ranges::equal(one.read(name).view().raw(), other.read(name).view().raw())) << name;
    }
  }
};

TEST_F(ElasticTest, AfterAKilledRankTheJobGoesOnWithOneFewerButNotBelowTheMinimum) {
  Program only = begin("only", job("run", {"-n", "2:4", "--restarts", "3"}));
  size_t ranks = 4;
  for (const size_t next : {3U, 2U, 2U}) {
    const int before = saved_steps();
    ASSERT_TRUE(
        soon([&] { return (saved_steps() >= before + 5 && workers_of(only).size() == ranks) || !is_running(only); }));
    const std::vector<int> old = workers_of(only);
    ASSERT_EQ(old.size(), ranks) << err_of(only);
    ASSERT_EQ(::kill(old[1], SIGKILL), 0);
    ASSERT_TRUE(
        soon([&] { return (workers_of(only).size() == next && workers_of(only)[0] != old[0]) || !is_running(only); }));
    ranks = next;
  }
  const Outcome outcome = finish(only);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("the job starts again (1 of 3) with 3 ranks: rank 1 (pid "),
                                 HasSubstr("the job starts again (2 of 3) with 2 ranks: rank 1 (pid "),
                                 HasSubstr("the job starts again (3 of 3) with 2 ranks: rank 1 (pid ")));
  EXPECT_THAT(left_over(), IsEmpty());
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints")).step(), 80);
}

TEST_F(ElasticTest, ANumberOfRanksThatTheConfigurationCannotHaveIsLeftOutAndTheResultIsTheSame) {
  const Words eight{"--numerics", "invariant", "--set", "train.batch=8"};  // over 4 ranks or 2, not over 3
  Words elastic{"-n", "2:4", "--restarts", "1"};
  append(elastic, eight);
  Program only = begin_and_kill_a_rank("only", elastic, 4);
  const Outcome outcome = finish(only);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("of -n 2:4 the job cannot go on with 3 ranks: train: a batch of 8 samples"),
                                 HasSubstr("the job starts again (1 of 1) with 2 ranks: rank 3 (pid ")));
  expect_as_undisturbed(eight);
}

TEST_F(ElasticTest, ARangeOfRanksOfWhichTheJobCanHaveNoFewerIsRefusedAtTheStart) {
  const Words sliced{"--zero", "1", "--set", "parallel.zero_shard_size=2"};
  const auto refusal = [&](Words words) {
    const Outcome outcome = run(job("run", words));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    return error_line(outcome);
  };
  Words one{"-n", "1:2", "--restarts", "1"};
  append(one, sliced);
  EXPECT_THAT(refusal(one), HasSubstr("train: -n 1:2: the job cannot go on with 1 rank: optimizer parallelism: a shard "
                                      "size of 2; it must be from 1 to 1, the number of ranks"));
  EXPECT_THAT(refusal({"-n", "3:4", "--restarts", "1", "--set", "train.batch=8"}),
              HasSubstr("the job cannot go on with 3 ranks: train: a batch of 8 samples does not divide over 3 ranks"));

  // Of three ranks two can be groups of two, and one cannot.
  Words words{"-n", "1:3", "--restarts", "2"};
  append(words, sliced);
  Program only = begin("only", job("run", words));
  for (const size_t ranks : {3U, 2U}) {
    const int before = saved_steps();
    ASSERT_TRUE(
        soon([&] { return (saved_steps() >= before + 5 && workers_of(only).size() == ranks) || !is_running(only); }));
    const std::vector<int> workers = workers_of(only);
    ASSERT_EQ(workers.size(), ranks) << err_of(only);
    ASSERT_EQ(::kill(workers.back(), SIGKILL), 0);
  }
  const Outcome outcome = finish(only);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("of -n 1:3 the job cannot go on with 1 rank: optimizer parallelism"),
                                 HasSubstr("the job starts again (1 of 2) with 2 ranks: rank 2 (pid "),
                                 HasSubstr("  the job cannot go on with 1 to 1 ranks\n")));
}

TEST_F(ElasticTest, ANumberOfRanksWhoseSharesDoNotFallInMicroBatchesIsLeftOut) {
  // 24 samples are 6 for each of 4 ranks, 12 for each of 2, and 8 for each of 3, which are no 3 micro-batches.
  Program only = begin_and_kill_a_rank(
      "only", {"-n", "2:4", "--restarts", "1", "--set", "train.batch=24", "--gradient-accumulation-steps", "3"}, 4);
  const Outcome outcome = finish(only);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the job starts again (1 of 1) with 2 ranks: rank 3 (pid "));
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints")).step(), 80);
}

// 12 samples fall in 3 parts; 3 ranks are no 2 stages.
TEST_F(ElasticTest, AnotherNumberOfRanksIsPlannedAnew) {
  Program only = begin_and_kill_a_rank("only", {"-n", "2:4", "--restarts", "1", "--auto", "--search", "exact"}, 4);
  const Outcome outcome = finish(only);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("the job starts again (1 of 1) with 3 ranks: rank 3 (pid "),
                                 HasSubstr("going on by another plan than the one in 'run/plan.trp': 3 ranks instead "
                                           "of 4")));
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints")).step(), 80);

  fs::remove_all(path("run"));
  Program piped =
      begin_and_kill_a_rank("piped", {"-n", "2:4", "--restarts", "1", "--auto", "--search", "exact", "--pp", "2"}, 4);
  const Outcome other = finish(piped);
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("the job starts again (1 of 1) with 2 ranks: rank 3 (pid "));
}

TEST_F(ElasticTest, AMeshWithMicroBatchesStartsAgainWithItsRanks) {
  Words words{"-n",         "2:2",
              "--restarts", "1",
              "--set",      "parallel.mode=semi_auto_parallel",
              "--set",      "parallel.mesh=dp=2,micro_batch=3"};
  Program only = begin_and_kill_a_rank("only", words, 2);
  const Outcome outcome = finish(only);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the job starts again (1 of 1) with 2 ranks: rank 1 (pid "));
}

TEST_F(ElasticTest, AJobOnTwoNodesStartsAgainOnBothAfterAKilledRank) {
  std::vector<Program> nodes;
  for (const char* rank : {"0", "1"}) {
    nodes.push_back(begin(fmt::format("node{}", rank),
                          job("run", {"-n", "1", "--nnodes", "2", "--node-rank", rank, "--master", master(),
                                      "--secret-file", "secret", "--restarts", "2", "--numerics", "invariant"})));
  }
  for (const size_t at : {1U, 0U}) {
    const int before = saved_steps();
    ASSERT_TRUE(soon([&] { return saved_steps() >= before + 10 || !is_running(nodes[0]); }))
        << err_of(nodes[0]) << err_of(nodes[1]);
    const std::vector<int> old = workers_of(nodes[at]);
    ASSERT_EQ(old.size(), 1) << err_of(nodes[0]);
    ASSERT_EQ(::kill(old[0], SIGKILL), 0);
    ASSERT_TRUE(soon(
        [&] { return (workers_of(nodes[at]).size() == 1 && workers_of(nodes[at]) != old) || !is_running(nodes[at]); }));
  }
  for (Program& one : nodes) {
    const Outcome outcome = finish(one);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("the job starts again (1 of 2): rank 1 (pid "),
                                   HasSubstr("the job starts again (2 of 2): rank 0 (pid ")));
  }
  EXPECT_THAT(left_over(), IsEmpty());
  expect_as_undisturbed({"--numerics", "invariant"});
}

TEST_F(ElasticTest, ALostNodeIsDoneWithoutAndBelowTheMinimumTheJobEnds) {
  Program sched = scheduler("2:3", {"--heartbeat", "2", "--restarts", "2", "--window", "3", "--log-dir", "logs"});
  std::vector<Program> agents;
  for (const char* id : {"0", "1", "2"}) {
    agents.push_back(
        begin(std::string("agent") + id, job("run", {"-n", "1", "--master", master(), "--world", "2:3", "--node-id", id,
                                                     "--secret-file", "secret", "--set", "train.steps=1000000"})));
  }
  for (const size_t at : {2U, 1U}) {
    const int before = saved_steps();
    ASSERT_TRUE(soon([&] { return saved_steps() >= before + 5 || !is_running(sched); })) << err_of(agents[0]);
    ::kill(agents[at].pid, SIGKILL);
    finish(agents[at]);
    if (at == 2) {
      ASSERT_TRUE(soon([&] { return read(path("logs/scheduler.log")).find("complete: 2 ranks") != std::string::npos; }))
          << err_of(agents[0]);
    }
  }
  const Outcome outcome = finish(agents[0]);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(
      outcome.err,
      AllOf(testing::ContainsRegex("the job starts again \\(1 of 2\\): .*(rank 2 \\(pid [0-9]+ at|node '2' on) "),
            testing::ContainsRegex("the job starts again \\(2 of 2\\): .*(rank 1 \\(pid [0-9]+ at|node '1' on) "),
            HasSubstr("error: waiting for 1 of at least 2 ranks when the window of 3.0 s closed")));
  EXPECT_EQ(finish(sched).code, 3);
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(ElasticTest, RangesThatMeanNothingAreRefused) {
  for (const char* text : {"4:2", "0:2", "2:", ":2", "a", "2:4:6"}) {
    const Outcome outcome = run({"launch", "-n", text, "true"});
    EXPECT_EQ(outcome.code, 2) << text;
    EXPECT_THAT(error_line(outcome), HasSubstr(fmt::format("launch: -n {}: ", text)));
  }
  EXPECT_THAT(error_line(run({"launch", "-n", "1:2", "--nnodes", "1", "true"})), HasSubstr("as in --nnodes 2:4"));
}

// The same program for every role, as MindSpore starts it.
TEST_F(NodesTest, MindSporesVariablesStartASchedulerAndWorkers) {
  write_gpt();
  const Words words{"train", "gpt.toml", "--quiet", "--out", "run", "--secret-file", "secret"};
  const Words common{"MS_WORKER_NUM=2", "MS_SCHED_HOST=127.0.0.1", fmt::format("MS_SCHED_PORT={}", port_),
                     "MS_TOPO_TIMEOUT=60"};
  const auto as = [&](const Words& more) {
    Words variables = common;
    append(variables, more);
    return variables;
  };
  Program sched = begin("sched", words, as({"MS_ROLE=MS_SCHED"}));
  Program zero = begin("zero", words, as({"MS_ROLE=MS_WORKER", "MS_NODE_ID=0"}));
  Program one = begin("one", words, as({"MS_ROLE=MS_WORKER", "MS_NODE_ID=1"}));
  for (Program* program : {&zero, &one, &sched}) {
    const Outcome outcome = finish(*program);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_THAT(out_of(zero), HasSubstr("2 ranks x"));
  EXPECT_THAT(error_line(run(words, {"MS_ROLE=MS_WORKER", "MS_WORKER_NUM=2"})), HasSubstr("MS_SCHED_HOST is not set"));
  EXPECT_THAT(error_line(run(words, {"MS_ROLE=MS_PSERVER", "MS_WORKER_NUM=2"})),
              HasSubstr("there are no parameter servers"));
  EXPECT_THAT(error_line(run(words, {"MS_ROLE=worker", "MS_WORKER_NUM=2"})),
              HasSubstr("it must be MS_WORKER, MS_SCHED"));
}

// A cluster of one rank has a scheduler too, which trains nothing.
TEST_F(NodesTest, OfAClusterOfOneRankTheSchedulerTrainsNothing) {
  write_gpt();
  const Words common{"MS_WORKER_NUM=1", "MS_SCHED_HOST=127.0.0.1", fmt::format("MS_SCHED_PORT={}", port_),
                     "MS_NODE_ID=0"};
  const auto as = [&](const std::string& role) {
    Words variables = common;
    variables.push_back("MS_ROLE=" + role);
    return variables;
  };
  const auto words = [](const std::string& out) {
    return Words{"train", "gpt.toml", "--quiet", "--out", out, "--secret-file", "secret"};
  };
  Program sched = begin("sched", words("of_scheduler"), as("MS_SCHED"));
  Program only = begin("only", words("of_worker"), as("MS_WORKER"));
  for (Program* program : {&only, &sched}) {
    const Outcome outcome = finish(*program);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_THAT(out_of(sched), HasSubstr("waiting at 127.0.0.1:"));
  EXPECT_FALSE(fs::exists(path("of_scheduler")));
  EXPECT_TRUE(fs::exists(path("of_worker/report.html")));
  // By no other command, nor as a rank of something else.
  for (const Words& command : {Words{"train", "gpt.toml", "--nnodes", "1"}, Words{"bench", "collective", "-n", "2"},
                               Words{"launch", "-n", "2", "--nnodes", "1", "true"}}) {
    const Outcome outcome = run(command, as("MS_SCHED"));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(error_line(outcome), HasSubstr("MS_ROLE=MS_SCHED")) << command[0];
  }
  EXPECT_THAT(error_line(run(words("rank"), {"MS_ROLE=MS_SCHED", "MS_WORKER_NUM=1", "RANK=0", "WORLD_SIZE=1"})),
              HasSubstr("MS_ROLE=MS_SCHED but RANK=0"));
}

// The same options for every role: the scheduler is the one that starts a job again.
TEST_F(NodesTest, MindSporesSchedulerTakesTheOptionsThatItHas) {
  const Words words{"launch",
                    "-n",
                    "1",
                    "--restarts",
                    "1",
                    "--log-dir",
                    "logs",
                    "--secret-file",
                    "secret",
                    "--",
                    "sh",
                    "-c",
                    "test $TRIREME_RESTART_COUNT != 0 || exit 7; touch again"};
  const auto as = [&](const std::string& role) {
    return Words{"MS_ROLE=" + role, "MS_WORKER_NUM=1", "MS_SCHED_HOST=127.0.0.1",
                 fmt::format("MS_SCHED_PORT={}", port_)};
  };
  Program sched = begin("sched", words, as("MS_SCHED"));
  Program only = begin("only", words, as("MS_WORKER"));
  for (Program* program : {&only, &sched}) {
    const Outcome outcome = finish(*program);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_TRUE(fs::exists(path("again")));
  EXPECT_THAT(read(path("logs/scheduler.log")), HasSubstr("the job starts again (1 of 1)"));
}

// An option that was typed says more than a variable; a variable without effect is said.
TEST_F(NodesTest, OptionsComeBeforeMindSporesVariables) {
  const Words variables{
      "MS_ROLE=MS_WORKER",   "MS_WORKER_NUM=2",      "MS_SCHED_HOST=127.0.0.1", fmt::format("MS_SCHED_PORT={}", port_),
      "MS_TOPO_TIMEOUT=600", "MS_ENABLE_RECOVERY=1", "MS_ENABLE_LCCL=1"};
  const Outcome alone = run({"launch", "-n", "1", "--world", "1", "--nnodes", "1", "--window", "2", "--secret-file",
                             "secret", "--", "sh", "-c", "echo $WORLD_SIZE"},
                            variables);
  EXPECT_EQ(alone.out, "1\n") << alone.err;
  EXPECT_THAT(alone.err, AllOf(HasSubstr("MS_ENABLE_RECOVERY=1 has no effect; --restarts"),
                               HasSubstr("MS_ENABLE_LCCL=1 has no effect")));
  const Outcome late = run({"launch", "-n", "1", "--window", "1", "--secret-file", "secret", "--", "true"}, variables);
  EXPECT_THAT(error_line(late), HasSubstr("within 1 s"));
}

TEST_F(NodesTest, ARankTableSaysHowManyRanksThisHostHas) {
  const auto device = [](int rank) {
    return fmt::format(R"({{"device_id": "{0}", "device_ip": "127.0.0.1", "rank_id": "{0}"}})", rank);
  };
  const auto table = [&](const std::string& server) {
    return fmt::format(R"({{"version": "1.0", "server_count": "1", "status": "completed", "server_list": [)"
                       R"({{"server_id": "{}", "host_nic_ip": "reserve", "device": [{}, {}]}}]}})",
                       server, device(0), device(1));
  };
  write("ranks.json", table("127.0.0.1"));
  const Outcome outcome = run({"launch", "--rank-table", "ranks.json", "--tail", "1", "--log-dir", "logs", "--", "sh",
                               "-c", "echo $RANK of $WORLD_SIZE"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("0 of 2\n"), HasSubstr("[1] 1 of 2\n")));
  write("other.json", table("192.0.2.1"));
  EXPECT_THAT(error_line(run({"launch", "--rank-table", "other.json", "true"})),
              HasSubstr("none of its 1 hosts (192.0.2.1) has an address of this host"));
  write("nowhere.json", table("999.0.2.1"));
  EXPECT_THAT(run({"launch", "--rank-table", "nowhere.json", "true"}).err,
              HasSubstr("it is a server_id of the rank table 'nowhere.json'"));
  EXPECT_THAT(error_line(run({"launch", "--rank-table", "ranks.json", "-n", "2", "true"})),
              HasSubstr("-n and --rank-table are both given"));
}

}  // namespace
}  // namespace trireme::cli::elastic_test

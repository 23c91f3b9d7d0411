// Faults while a job runs: killed workers, full and read-only disks. The job ends with one error, no process of it is
// left, and the checkpoint made before still loads.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/cli/program.h"
#include "trireme/backend/cpu/isa/isa.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/report/run_log.h"

namespace trireme::cli::faults_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class FaultTest : public CliTest {
 protected:
  // A run of 2 steps in `out`, whose checkpoint the faults must not harm.
  void make_run(const std::string& out = "run") {
    write_gpt();
    const Outcome outcome =
        CliTest::run({"train", "gpt.toml", "--out", out, "-n", "2", "--quiet", "--set", "train.steps=2"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  Words go_on(const Words& more, const std::string& out = "run") const {
    Words words{"train", "gpt.toml", "--out", out, "-n", "2", "--resume"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void expect_checkpoint_loads(const std::string& out = "run") const {
    const ckpt::Reader reader(path(out + "/checkpoints"));
    EXPECT_GE(reader.step(), 2);
    reader.verify();
  }
  // Kills one worker, which must be there, and looks at how the job ends.
  void kill_worker(size_t rank) {
    SCOPED_TRACE(err_so_far());
    const std::vector<int> processes = workers();
    ASSERT_THAT(processes, SizeIs(2)) << err_so_far();
    ASSERT_EQ(::kill(processes[rank], SIGKILL), 0);
    const Outcome outcome = wait();
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("error: rank {} (pid {}) was killed by signal 9 (SIGKILL)", rank,
                                                   processes[rank])));
    EXPECT_THAT(left_over(), IsEmpty());
    expect_checkpoint_loads();
  }
  // As the link to the newest checkpoint says; 0: there is none.
  int saved_steps(const std::string& out) const {
    std::error_code none;
    const std::string newest = fs::read_symlink(path(out + "/checkpoints/latest"), none).string();
    return newest.starts_with("step-") ? std::atoi(newest.c_str() + 5) : 0;
  }
  // Of the run's curves, each with its step.
  std::vector<std::pair<int64_t, double>> losses(const std::string& out) const {
    std::vector<std::pair<int64_t, double>> found;
    for (const RunRecord& record : read_run_log(path(out + "/metrics.jsonl"))) {
      for (const auto& [key, value] : record.values) {
        if (key == "loss") found.emplace_back(record.step, value);
      }
    }
    return found;
  }
  bool steps_are_done() {
    return wait_until([&] { return err_so_far().find("step ") != std::string::npos; });
  }
};

TEST_F(FaultTest, AWorkerKilledWhileTheJobStartsEndsTheJob) {
  make_run();
  for (const size_t rank : {0U, 1U}) {
    start(go_on({"--set", "train.steps=1000000"}));
    ASSERT_TRUE(wait_until([&] { return workers().size() == 2; }));
    kill_worker(rank);
  }
}

TEST_F(FaultTest, AWorkerKilledAtARandomMomentOfTheStepEndsTheJob) {
  make_run();
  std::mt19937 random(1);
  for (const size_t rank : {0U, 1U, 0U, 1U}) {
    start(go_on({"--set", "train.steps=1000000"}));
    ASSERT_TRUE(steps_are_done()) << err_so_far();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    kill_worker(rank);
  }
}

TEST_F(FaultTest, AWorkerKilledAtARandomMomentOfTheSaveEndsTheJob) {
  make_run();
  std::mt19937 random(2);
  for (const size_t rank : {0U, 1U, 0U, 1U}) {
    start(go_on({"--set", "train.steps=1000000", "--set", "train.save_every=1"}));  // nearly all the time is saving
    ASSERT_TRUE(steps_are_done()) << err_so_far();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 50'000));
    kill_worker(rank);
  }
  const int64_t step = ckpt::Reader(path("run/checkpoints")).step();
  const Outcome outcome = run(go_on({"--set", fmt::format("train.steps={}", step + 1), "--quiet"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(FaultTest, AStoppedWorkerIsToldFromASlowOneAndNamed) {
  make_run();
  start(go_on({"--set", "train.steps=1000000"}), {"TRIREME_HANG_TIMEOUT=2"});
  ASSERT_TRUE(steps_are_done()) << err_so_far();
  const std::vector<int> processes = workers();
  ASSERT_THAT(processes, SizeIs(2)) << err_so_far();
  ASSERT_EQ(::kill(processes[1], SIGSTOP), 0);
  const Outcome outcome = wait();

  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(fmt::format("error: rank 1 (pid {}) hangs: for ", processes[1])),
                                 HasSubstr("it is stopped by a signal"), HasSubstr("\n  [rank 0 of 2] "),
                                 HasSubstr(fmt::format(" waits for rank 1 (pid {} at ", processes[1]))));
  EXPECT_THAT(left_over(), IsEmpty());
  expect_checkpoint_loads();
}

// The run is the one that nobody disturbed, and an earlier run's checkpoints are not taken for its own.
TEST_F(FaultTest, AJobThatMayRestartGoesOnFromItsNewestCheckpoint) {
  make_run("whole");
  make_run("run");
  const Words more{"--set", "train.steps=120", "--set", "train.save_every=1"};
  Words words{"train", "gpt.toml", "-n", "2", "--quiet"};
  words.insert(words.end(), more.begin(), more.end());
  Words whole = words;
  whole.insert(whole.end(), {"--out", "whole"});
  ASSERT_EQ(run(whole).code, 0);

  words.insert(words.end(), {"--out", "run", "--restarts", "2"});
  start(words);
  for (const size_t rank : {0U, 1U}) {
    ASSERT_TRUE(wait_until([&] { return saved_steps("run") >= (rank == 0 ? 20 : 60); }));
    const std::vector<int> processes = workers();
    ASSERT_THAT(processes, SizeIs(2)) << err_so_far();
    ASSERT_EQ(::kill(processes[rank], SIGKILL), 0);
    ASSERT_TRUE(wait_until([&] { return workers().size() == 2 && workers() != processes; })) << err_so_far();
  }
  const Outcome outcome = wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("the job starts again (1 of 2): rank 0 (pid "),
                                 HasSubstr("the job starts again (2 of 2): rank 1 (pid ")));
  const ckpt::Reader one(path("whole/checkpoints"));
  const ckpt::Reader other(path("run/checkpoints"));
  EXPECT_EQ(other.step(), 120);
  for (const std::string& name : one.names()) {
    EXPECT_TRUE(std::ranges::equal(one.read(name).view().raw(), other.read(name).view().raw())) << name;
  }
  EXPECT_THAT(losses("whole"), SizeIs(120));
  EXPECT_EQ(losses("run"), losses("whole")) << "curves end before the checkpoint that the run went on from";
  EXPECT_THAT(left_over(), IsEmpty());
}

// What lies in the folder of a job that failed before it had moved the earlier run away is not its own.
TEST_F(FaultTest, AJobThatRestartsBeforeItHasWrittenAnythingDoesNotTakeTheEarlierRunForItsOwn) {
  make_run();
  const Outcome outcome =
      run({"launch", "-n", "2", "--restarts", "1", "--log-dir", "logs", "--", "sh", "-c",
           fmt::format("test $TRIREME_RESTART_COUNT != 0 || exit 7; exec {} train gpt.toml --out run --quiet --set "
                       "train.steps=1",
                       TRIREME_PROGRAM)});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("'run' held an earlier run"));
  EXPECT_EQ(ckpt::Reader(path("run/earlier-1/checkpoints")).step(), 2);
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints")).step(), 1);
}

TEST_F(FaultTest, AKilledLauncherTakesItsWorkersAlong) {
  make_run();
  start(go_on({"--set", "train.steps=1000000"}));
  ASSERT_TRUE(steps_are_done()) << err_so_far();
  ASSERT_THAT(workers(), SizeIs(2));
  ASSERT_EQ(::kill(pid(), SIGKILL), 0);
  EXPECT_EQ(wait().code, 128 + SIGKILL);
  for (int i = 0; i < 2000 && !left_over().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_THAT(left_over(), IsEmpty());
  expect_checkpoint_loads();
}

TEST_F(FaultTest, TooFewOpenFilesAreSaidBeforeAnyRankStarts) {
  write_gpt();
  const std::string train = fmt::format("exec {} train gpt.toml --out run -n 4 --quiet", TRIREME_PROGRAM);
  const Outcome few = run_shell("ulimit -n 83; " + train);
  EXPECT_EQ(few.code, 2);
  EXPECT_EQ(
      error_line(few),
      "launch: 4 ranks on this host need 84 open files and sockets in a process, but the limit is 83 (RLIMIT_NOFILE); "
      "raise it with 'ulimit -Hn 84', or start fewer ranks here");
  EXPECT_FALSE(fs::exists(path("run/checkpoints")));
  const Outcome enough = run_shell("ulimit -n 84; " + train);
  EXPECT_EQ(enough.code, 0) << enough.err;
  // A soft limit is raised, and the ranks inherit it.
  const Outcome soft = run_shell(
      fmt::format("ulimit -Sn 20; {} launch -n 8 -- sh -c 'echo $(ulimit -Sn) > files_$RANK'", TRIREME_PROGRAM));
  EXPECT_EQ(soft.code, 0) << soft.err;
  EXPECT_EQ(read(path("files_7")), "104\n");
}

TEST_F(FaultTest, ARankThatDoesNotStartIsNamedByTheOthers) {
  write_gpt();
  const Words job{"WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
                  "TRIREME_START_TIMEOUT=1"};
  const auto alone = [&](const std::string& rank) {
    Words variables = job;
    variables.push_back("RANK=" + rank);
    const Outcome outcome = run({"train", "gpt.toml"}, variables);
    EXPECT_EQ(outcome.code, 3);
    return error_line(outcome);
  };
  EXPECT_THAT(alone("0"),
              HasSubstr("[rank 0 of 2] connect (job job): rank 1 did not join within 1.0 s; start all 2 ranks"));
  EXPECT_THAT(alone("1"), HasSubstr("[rank 1 of 2] launch: rank 0 did not start on this host within 1.0 s"));
}

TEST_F(FaultTest, RanksWithDifferentInstructionSetsDoNotStart) {
  write_gpt();
  const auto start = [&](const std::string& numerics, const std::string& isa_of_rank_1) {
    return run_shell(
        fmt::format("export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={0}\n"
                    "job=\"{1} train gpt.toml --quiet --set train.steps=2 --numerics {2}\"\n"
                    "RANK=1 LOCAL_RANK=1 TRIREME_ISA={3} $job 2>other & other=$!\n"
                    "RANK=0 LOCAL_RANK=0 TRIREME_ISA=baseline $job; code=$?\n"
                    "wait $other; exit $code",
                    20'000 + ::getpid() % 10'000, TRIREME_PROGRAM, numerics, isa_of_rank_1));
  };
  EXPECT_EQ(start("fast", "baseline").code, 0);
  if (machine_isa() == Isa::kBaseline) GTEST_SKIP() << "this machine has only one instruction set";
  for (const std::string numerics : {"fast", "invariant"}) {
    const Outcome outcome = start(numerics, "native");
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(error_line(outcome),
                HasSubstr(fmt::format("rank 0 is '{} on baseline'; set TRIREME_ISA on all ranks", numerics)));
  }
}

// A file system of its own in "disk", seen by this process and its children only.
class DiskTest : public FaultTest {
 protected:
  void SetUp() override {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      GTEST_SKIP() << "mounting takes root in this container (" << std::strerror(errno) << ")";
    }
    fs::create_directory(path("disk"));
    if (::mount("tmpfs", path("disk").c_str(), "tmpfs", 0, "size=2m") != 0) {
      GTEST_SKIP() << "a tmpfs cannot be mounted here (" << std::strerror(errno) << ")";
    }
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) ::umount2(path("disk").c_str(), MNT_DETACH);
  }
  void fill_but(size_t bytes) const {
    const std::string block(4096, 'x');
    const fs::space_info space = fs::space(path("disk"));
    std::string filler;
    for (size_t left = space.available; left > bytes + block.size(); left -= block.size()) filler += block;
    write("disk/filler", filler);
  }

 private:
  bool mounted_ = false;
};

TEST_F(DiskTest, AFullDiskIsSaidAndTheEarlierCheckpointStays) {
  make_run("disk/run");
  for (const size_t room : {0U, 20'000U, 60'000U}) {
    fill_but(room);
    const Outcome outcome =
        run(go_on({"--quiet", "--set", "train.steps=8", "--set", "train.save_every=1"}, "disk/run"));
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    // With no room at all it is the job's name that does not get written, else the checkpoint.
    EXPECT_THAT(error_line(outcome),
                AllOf(HasSubstr("cannot write"),
                      HasSubstr(room == 0 ? "'disk/run/job.name'" : "disk/run/checkpoints/step-000003"),
                      HasSubstr("; free space there or choose another directory")));
    EXPECT_THAT(left_over(), IsEmpty());
    fs::remove(path("disk/filler"));
    expect_checkpoint_loads("disk/run");
  }
  const Outcome outcome = run(go_on({"--quiet", "--set", "train.steps=8"}, "disk/run"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(DiskTest, AReadOnlyFolderIsSaidBeforeAnyStep) {
  make_run("disk/run");
  ASSERT_EQ(::mount(nullptr, path("disk").c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  for (const char* ranks : {"1", "2"}) {
    for (const char* out : {"disk/run", "disk/other"}) {
      const Outcome outcome = run({"train", "gpt.toml", "--out", out, "-n", ranks});
      EXPECT_EQ(outcome.code, 3) << outcome.err;
      EXPECT_THAT(error_line(outcome), AllOf(HasSubstr(out), HasSubstr("Read-only file system")));
    }
  }
  EXPECT_THAT(left_over(), IsEmpty());
  expect_checkpoint_loads("disk/run");
}

}  // namespace
}  // namespace trireme::cli::faults_test

// Every way to start a job gives the same run: the same losses to the bit, however the ranks were started and whatever
// carries their tensors.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/program.h"

namespace trireme::cli::start_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

#ifdef TRIREME_MPIEXEC
constexpr const char* kMpirun = TRIREME_MPIEXEC;
#else
constexpr const char* kMpirun = "";
#endif

const std::vector<std::string> kMpiSettings{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                            "OMPI_MCA_mpi_yield_when_idle=1"};

struct Way {
  std::string name;
  std::string variables;  // of one rank, as the shell reads them: $r is its number, $n how many there are
  std::string options;
  std::string started_by;
};

// Set by hand as the launcher sets them. `localhost` for a host of two makes rank 0 listen there, and then a secret is
// asked for.
const std::vector<Way>& ways() {
  static const std::vector<Way> all{
      {"torchrun",
       "RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "
       "TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True",
       "", "torchrun"},
      {"srun",
       "SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=$n SLURM_NTASKS=$n SLURM_LOCALID=$r SLURM_NODEID=0 SLURM_JOB_ID=$port "
       "SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost SLURM_STEP_TASKS_PER_NODE=$n",
       "", "srun"},
      {"srun_hosts",
       "SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=$n SLURM_LOCALID=$r SLURM_NODEID=0 SLURM_JOB_ID=$port "
       "SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost,other TRIREME_SECRET_FILE=secret",
       "", "srun"},
      {"kubernetes",
       "JOB_COMPLETION_INDEX=$r WORLD_SIZE=$n MASTER_ADDR=localhost MASTER_PORT=$port "
       "TRIREME_SECRET_FILE=secret",
       "", "Kubernetes"},
      {"rank_table", "RANK_TABLE_FILE=table$n.json RANK_ID=$r RANK_SIZE=$n", "", "a rank table"},
      {"mpich", "PMI_RANK=$r PMI_SIZE=$n MPI_LOCALRANKID=$r MPI_LOCALNRANKS=$n", "", "mpirun (MPICH or Intel MPI)"},
      {"mpirun", "", "", "mpirun"},
      {"mpirun_mpi", "", "--transport mpi", "mpirun"},
  };
  return all;
}

class StartTest : public CliTest {
 protected:
  StartTest() {
    write_gpt();
    write_mlp();
    write("secret", std::string(64, 'c'));
    std::filesystem::permissions(path("secret"), std::filesystem::perms::owner_read);
    for (const int ranks : {1, 2, 4}) write_table(ranks);
  }

  void write_table(int ranks) const {
    std::string devices;
    for (int rank = 0; rank < ranks; ++rank) {
      devices += fmt::format(R"({}{{"device_id": "{}", "device_ip": "127.0.0.1", "rank_id": "{}"}})",
                             rank > 0 ? ", " : "", rank, rank);
    }
    write(
        fmt::format("table{}.json", ranks),
        R"({"version": "1.0", "server_count": "1", "status": "completed", "server_list": [{"server_id": "127.0.0.1", )"
        R"("host_nic_ip": "reserve", "device": [)" +
            devices + "]}]}");
  }

  std::vector<std::string> losses(const std::string& out) const {
    std::vector<std::string> found;
    std::ifstream file(path(out + "/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const size_t at = line.find("\"loss\":");
      if (at != std::string::npos) found.push_back(line.substr(at, line.find(',', at) - at));
    }
    return found;
  }

  Outcome train_by(const Way& way, int ranks, const std::string& config, const std::string& out) {
    const std::string command =
        fmt::format("{} train {}.toml --quiet --out {} {}", TRIREME_PROGRAM, config, out, way.options);
    Words environment = kMpiSettings;
    environment.push_back("TRIREME_LOG=warn,launch=info");
    if (way.variables.empty()) {
      return run_shell(fmt::format("exec {} --oversubscribe -n {} {}", kMpirun, ranks, command), environment);
    }
    return run_shell(
        fmt::format("n={} port={} all= code=0\nfor r in $(seq 0 $(({} - 1))); do {} {} & all=\"$all $!\"; done\n"
                    "for one in $all; do wait $one || code=$?; done; exit $code",
                    ranks, 20'000 + ::getpid() % 10'000, ranks, way.variables, command),
        environment);
  }

  void expect_same_runs(const std::string& config, int ranks) {
    const Outcome own = run({"train", config + ".toml", "--quiet", "-n", std::to_string(ranks), "--out", "own"});
    ASSERT_EQ(own.code, 0) << own.err;
    ASSERT_THAT(losses("own"), SizeIs(6));
    for (const Way& way : ways()) {
      if (way.variables.empty() && *kMpirun == '\0') continue;
      SCOPED_TRACE(way.name);
      const Outcome outcome = train_by(way, ranks, config, way.name);
      EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
      EXPECT_EQ(losses(way.name), losses("own"));
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_THAT(outcome.err, HasSubstr(fmt::format("rank {} of {}, started by {}", rank, ranks, way.started_by)));
      }
    }
    EXPECT_THAT(left_over(), IsEmpty());
    EXPECT_THAT(std::filesystem::exists(dir_ + "/tmp/trireme-" + std::to_string(::geteuid()))
                    ? std::distance(
                          std::filesystem::directory_iterator(dir_ + "/tmp/trireme-" + std::to_string(::geteuid())), {})
                    : 0,
                0)
        << "a secret's file is left";
  }
};

TEST_F(StartTest, OneRankIsTheSameHoweverItIsStarted) {
  expect_same_runs("gpt", 1);
  expect_same_runs("mlp", 1);
}

TEST_F(StartTest, TwoRanksAreTheSameHoweverTheyAreStarted) {
  expect_same_runs("gpt", 2);
  expect_same_runs("mlp", 2);
}

TEST_F(StartTest, RanksThatOnePlanIsMadeForAreTheSameHoweverTheyAreStarted) {
  write("planned.toml", read(path("gpt.toml")) + "[parallel]\nmode = \"auto_parallel\"\nsearch = \"exact\"\npp = 2\n");
  expect_same_runs("planned", 2);
}

TEST_F(StartTest, FourRanksOfAGptAreTheSameHoweverTheyAreStarted) {
  expect_same_runs("gpt", 4);
}

TEST_F(StartTest, FourRanksOfAnMlpAreTheSameHoweverTheyAreStarted) {
  expect_same_runs("mlp", 4);
}

TEST_F(StartTest, ARankOfSeveralRefusesAnotherNumberOfRanks) {
  const Outcome outcome =
      run({"train", "mlp.toml", "-n", "3"}, {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(error_line(outcome),
            "-n 3, but torchrun has started this process as rank 1 of 2 (RANK=1 of WORLD_SIZE=2); "
            "leave -n out");
}

TEST_F(StartTest, AcrossHostsWithoutASecretTheJobIsRefusedOrWarnsAtEveryStart) {
  const Way hosts{"hosts",
                  "SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=$n SLURM_LOCALID=$r SLURM_NODEID=0 SLURM_JOB_ID=$port "
                  "SLURM_STEP_ID=1 SLURM_STEP_NODELIST=localhost,other",
                  "", "srun"};
  const Outcome refused = train_by(hosts, 2, "mlp", "refused");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("none was given a secret"), HasSubstr("TRIREME_SECRET_FILE=FILE")));

  // A rank with another secret is told so, and so is rank 0, which misses it.
  ASSERT_EQ(run({"launch", "--make-secret", "other"}).code, 0);
  ASSERT_EQ(run({"launch", "--make-secret", "its.own"}).code, 0);
  Way differing = hosts;
  differing.variables += " TRIREME_START_TIMEOUT=3 TRIREME_SECRET_FILE=$(test $r = 0 && echo its.own || echo other)";
  const Outcome differs = train_by(differing, 2, "mlp", "differing");
  EXPECT_NE(differs.code, 0);
  EXPECT_THAT(differs.err,
              AllOf(HasSubstr("does not accept the job secret of this rank"),
                    HasSubstr("refused because the job's secret was not proven: do all ranks have the same")));

  Way insecure = hosts;
  insecure.options = "--insecure";
  const Outcome outcome = train_by(insecure, 2, "mlp", "insecure");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("--insecure: whoever reaches this host can join the job"));
}

// Of mpirun's ranks that see themselves on hosts of their own: MPI does not carry the secret.
TEST_F(StartTest, MpirunAcrossHostsAsksForASecretAndDoesNotSendIt) {
  if (*kMpirun == '\0') GTEST_SKIP() << "no mpirun";
  write_mlp();
  const auto train = [&](const std::string& variables, const std::string& options) {
    const std::string rank = fmt::format(
        "OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 {} exec {} train "
        "mlp.toml --quiet --out run {}",
        variables, TRIREME_PROGRAM, options);
    write("rank.sh", rank + "\n");
    return run_shell(fmt::format("exec {} --oversubscribe -n 2 sh rank.sh", kMpirun), kMpiSettings);
  };
  const Outcome refused = train("", "");
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(
      refused.err,
      AllOf(HasSubstr("OMPI_COMM_WORLD_SIZE=2 says that ranks may be on several hosts, and none was given a secret"),
            HasSubstr("mpirun -x TRIREME_SECRET_FILE")));
  ASSERT_EQ(run({"launch", "--make-secret", "given.secret"}).code, 0);
  const Outcome given = train("TRIREME_SECRET_FILE=given.secret", "");
  EXPECT_EQ(given.code, 0) << given.err;
  ASSERT_EQ(run({"launch", "--make-secret", "other"}).code, 0);
  const Outcome differs =
      train("TRIREME_SECRET_FILE=$(test $OMPI_COMM_WORLD_RANK = 0 && echo given.secret || echo other)", "");
  EXPECT_NE(differs.code, 0);
  EXPECT_THAT(differs.err, HasSubstr("it refused the job secret of this process"));
  const Outcome insecure = train("", "--insecure");
  EXPECT_EQ(insecure.code, 0) << insecure.err;
  EXPECT_THAT(insecure.err, HasSubstr("--insecure: whoever reaches this host can join the job"));
  EXPECT_EQ(train("", "--transport mpi").code, 0);
}

// No plan shows a seed or a rate: ranks with others would train on, on weights that are no longer those of the rest.
TEST_F(StartTest, RanksThatWereGivenDifferentSettingsDoNotTrain) {
  Way way = ways()[0];
  const auto refused = [&](const std::string& options) {
    way.options = options;
    const Outcome outcome = train_by(way, 2, "mlp", "run");
    EXPECT_EQ(outcome.code, 2) << options;
    EXPECT_TRUE(losses("run").empty()) << options;
    return outcome.err;
  };
  EXPECT_THAT(refused("--seed $((r + 5))"), HasSubstr("'train.seed = 5' on rank 0, 'train.seed = 6' on rank 1"));
  EXPECT_THAT(refused("--lr 0.0$((r + 1))"),
              HasSubstr("'the learning rate = 0.01' on rank 0, 'the learning rate = 0.02' on rank 1"));
  EXPECT_THAT(refused("--steps $((r + 2))"), HasSubstr("'train.steps = 2' on rank 0, 'train.steps = 3' on rank 1"));
  EXPECT_THAT(refused("--save-every $((r + 2))"), HasSubstr("'train.save_every = 2' on rank 0"));
  EXPECT_THAT(refused("--set data.samples=$((100 - r))"), HasSubstr("'the training data = "));
  // The same folder by name, of another disk.
  write("own.sh", "mkdir -p own$RANK && cd own$RANK && exec " + std::string(TRIREME_PROGRAM) + " \"$@\"");
  const Outcome apart = run_shell(
      fmt::format("export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}\n"
                  "for r in 0 1; do RANK=$r LOCAL_RANK=$r sh own.sh train ../mlp.toml --quiet --out run & done; wait",
                  20'000 + ::getpid() % 10'000));
  EXPECT_THAT(apart.err, HasSubstr("rank 1 does not find in 'run' what rank 0 has written there (job.lock)"));
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(StartTest, VariablesThatContradictEachOtherAreRefusedBeforeAnyRankStarts) {
  const Outcome outcome =
      run({"train", "mlp.toml", "-n", "2"}, {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
                                             "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(error_line(outcome),
              HasSubstr("RANK=0 of WORLD_SIZE=2 but OMPI_COMM_WORLD_RANK=1 of OMPI_COMM_WORLD_SIZE=2"));
}

}  // namespace
}  // namespace trireme::cli::start_test

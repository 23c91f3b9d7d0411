#include "trireme/launch/start/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch::start_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kTable = R"({"version": "1.0", "server_count": "2", "status": "completed",
  "server_list": [
    {"server_id": "10.0.0.5", "host_nic_ip": "reserve", "device": [
      {"device_id": "0", "device_ip": "10.0.0.5", "rank_id": "0"},
      {"device_id": "3", "device_ip": "10.0.0.5", "rank_id": "1"}]},
    {"server_id": "10.0.0.6", "host_nic_ip": "reserve", "device": [
      {"device_id": "1", "device_ip": "10.0.0.6", "rank_id": "2"}]}]})";

std::string read_table(const std::string& path) {
  if (path != "table.json") throw Error(ErrorKind::kIo, "no file " + path);
  return kTable;
}

RankInfo start_of(const Environment& environment) {
  return describe_start(environment, read_table);
}

std::string refusal(const Environment& environment) {
  try {
    const RankInfo info = start_of(environment);
    return "started by " + info.started_by;
  } catch (const Error& e) {
    EXPECT_NE(e.kind(), ErrorKind::kInternal);
    return e.text();
  }
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) {
    environment[name] = value;
    if (value.empty()) environment.erase(name);
  }
  return environment;
}

const Environment kTorchrun{
    {"RANK", "5"},         {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
    {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}, {"GROUP_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "none"}};
const Environment kMpirun{{"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_RANK", "3"},
                          {"PMIX_NAMESPACE", "1324810241"}};
const Environment kMpich{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kSrun{{"SLURM_PROCID", "4"},
                        {"SLURM_STEP_NUM_TASKS", "6"},
                        {"SLURM_NTASKS", "6"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_NODEID", "1"},
                        {"SLURM_STEP_NODELIST", "n[08-09]"},
                        {"SLURM_STEP_TASKS_PER_NODE", "3(x2)"},
                        {"SLURM_JOB_ID", "71"},
                        {"SLURM_STEP_ID", "0"}};
const Environment kRankTable{{"RANK_TABLE_FILE", "table.json"}, {"RANK_ID", "1"}};
const Environment kPod{
    {"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "train-0.train"}, {"MASTER_PORT", "29500"}};

struct Row {
  std::string name;
  Environment environment;
  RankInfo wanted;
};

class EverySource : public testing::TestWithParam<Row> {};

TEST_P(EverySource, IsFoundWithItsPlace) {
  const RankInfo info = start_of(GetParam().environment);
  const RankInfo& wanted = GetParam().wanted;

  EXPECT_EQ(info.started_by, wanted.started_by);
  EXPECT_EQ(info.rank, wanted.rank);
  EXPECT_EQ(info.world, wanted.world);
  EXPECT_EQ(info.local_rank, wanted.local_rank);
  EXPECT_EQ(info.local_world, wanted.local_world);
  EXPECT_EQ(info.one_host, wanted.one_host);
  EXPECT_EQ(info.served, wanted.served);
  EXPECT_EQ(info.master_address, wanted.master_address);
  EXPECT_EQ(info.evidence, wanted.evidence);
}

INSTANTIATE_TEST_SUITE_P(, EverySource,
                         testing::Values(Row{"nothing", {}, {}},
                                         Row{"own_launcher",
                                             with(kTorchrun, {{"TRIREME_ERROR_FD", "9"}}),
                                             {.rank = 5,
                                              .world = 8,
                                              .local_rank = 1,
                                              .local_world = 4,
                                              .started_by = "trireme launch",
                                              .evidence = "RANK=5 of WORLD_SIZE=8",
                                              .one_host = false,
                                              .served = true,
                                              .master_address = "n1"}},
                                         Row{"torchrun",
                                             kTorchrun,
                                             {.rank = 5,
                                              .world = 8,
                                              .local_rank = 1,
                                              .local_world = 4,
                                              .started_by = "torchrun",
                                              .evidence = "RANK=5 of WORLD_SIZE=8",
                                              .one_host = false,
                                              .master_address = "n1"}},
                                         Row{"torchrun_one_host",
                                             with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}, {"LOCAL_RANK", "5"}}),
                                             {.rank = 5,
                                              .world = 8,
                                              .local_rank = 5,
                                              .local_world = 8,
                                              .started_by = "torchrun",
                                              .evidence = "RANK=5 of WORLD_SIZE=8",
                                              .one_host = true,
                                              .master_address = "n1"}},
                                         Row{"mpirun",
                                             kMpirun,
                                             {.rank = 3,
                                              .world = 4,
                                              .local_rank = 1,
                                              .local_world = 2,
                                              .started_by = "mpirun",
                                              .evidence = "OMPI_COMM_WORLD_RANK=3 of OMPI_COMM_WORLD_SIZE=4",
                                              .one_host = false}},
                                         Row{"mpich",
                                             kMpich,
                                             {.rank = 1,
                                              .world = 2,
                                              .local_rank = 1,
                                              .local_world = 2,
                                              .started_by = "mpirun (MPICH or Intel MPI)",
                                              .evidence = "PMI_RANK=1 of PMI_SIZE=2"}},
                                         Row{"srun",
                                             kSrun,
                                             {.rank = 4,
                                              .world = 6,
                                              .local_rank = 1,
                                              .local_world = 3,
                                              .started_by = "srun",
                                              .evidence = "SLURM_PROCID=4 of SLURM_STEP_NUM_TASKS=6",
                                              .one_host = false,
                                              .master_address = "n08"}},
                                         Row{"rank_table",
                                             kRankTable,
                                             {.rank = 1,
                                              .world = 3,
                                              .local_rank = 1,
                                              .local_world = 2,
                                              .started_by = "a rank table",
                                              .evidence = "RANK_ID=1 of 3 in RANK_TABLE_FILE=table.json",
                                              .one_host = false,
                                              .master_address = "10.0.0.5"}},
                                         Row{"kubernetes",
                                             kPod,
                                             {.rank = 2,
                                              .world = 3,
                                              .started_by = "Kubernetes",
                                              .evidence = "JOB_COMPLETION_INDEX=2 of WORLD_SIZE=3",
                                              .one_host = false,
                                              .master_address = "train-0.train"}}),
                         [](const auto& info) { return info.param.name; });

TEST(Start, ALauncherInsideAnothersProcessesCounts) {
  // torchrun once a host under srun, and in the pods of an indexed job.
  EXPECT_EQ(start_of(with(kTorchrun, kSrun)).started_by, "torchrun");
  EXPECT_EQ(start_of(with(kTorchrun, {{"JOB_COMPLETION_INDEX", "1"}})).started_by, "torchrun");
  // mpirun's own processes on other hosts are started by srun.
  EXPECT_EQ(start_of(with(kMpirun, with(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}))).started_by,
            "mpirun");
  EXPECT_EQ(start_of(with(kMpirun, {{"JOB_COMPLETION_INDEX", "1"}})).started_by, "mpirun");
  // Whatever started the launcher.
  EXPECT_EQ(start_of(with(with(kTorchrun, {{"TRIREME_ERROR_FD", "9"}}), kMpirun)).started_by, "trireme launch");
  // The script of sbatch is not a step of srun.
  EXPECT_EQ(start_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).world, 1);
}

TEST(Start, SourcesThatAgreeAreOne) {
  const Environment same{{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}};
  EXPECT_EQ(start_of(with(kTorchrun, same)).started_by, "torchrun");
}

TEST(Start, SourcesThatDisagreeAreRefusedWithBothValues) {
  const Environment plain = with(kTorchrun, {{"TORCHELASTIC_RUN_ID", ""}});
  EXPECT_EQ(refusal(with(plain, kMpirun)),
            "environment: RANK=5 of WORLD_SIZE=8 but OMPI_COMM_WORLD_RANK=3 of "
            "OMPI_COMM_WORLD_SIZE=4; unset the variables of one of them");
  EXPECT_EQ(refusal(with(kMpirun, kMpich)),
            "environment: OMPI_COMM_WORLD_RANK=3 of OMPI_COMM_WORLD_SIZE=4 but PMI_RANK=1 of "
            "PMI_SIZE=2; unset the variables of one of them");
  EXPECT_EQ(refusal(with(kMpirun, kRankTable)),
            "environment: OMPI_COMM_WORLD_RANK=3 of OMPI_COMM_WORLD_SIZE=4 but RANK_ID=1 of 3 in "
            "RANK_TABLE_FILE=table.json; unset the variables of one of them");
  EXPECT_EQ(refusal(with(kPod, {{"RANK", "0"}})),
            "environment: RANK=0 of WORLD_SIZE=3 but JOB_COMPLETION_INDEX=2 of WORLD_SIZE=3; unset "
            "the variables of one of them");
  EXPECT_EQ(refusal(with(kMpirun, {{"PMIX_RANK", "2"}})),
            "environment: OMPI_COMM_WORLD_RANK=3 of OMPI_COMM_WORLD_SIZE=4 but PMIX_RANK=2; unset the "
            "variables of one of them");
  EXPECT_EQ(refusal(with(kRankTable, {{"RANK_SIZE", "8"}})),
            "environment: RANK_ID=1 of 3 in RANK_TABLE_FILE=table.json but RANK_SIZE=8; unset one of "
            "them");
  EXPECT_EQ(refusal(with(kRankTable, {{"DEVICE_ID", "1"}})),
            "environment: DEVICE_ID=1 but the rank table 'table.json' gives rank 1 device 3");
}

// A variable left over from somewhere must not turn a job of several into several jobs of one.
TEST(Start, ASmallerJobThanTheOneAroundItIsRefused) {
  EXPECT_EQ(refusal(with(kSrun, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})),
            "environment: RANK=0 of WORLD_SIZE=1 but SLURM_PROCID=4 of SLURM_STEP_NUM_TASKS=6; unset "
            "the variables of one of them");
}

TEST(Start, OneOfSeveralThatCannotFindTheOthersSaysSo) {
  EXPECT_THAT(refusal({{"PMIX_RANK", "3"}}),
              HasSubstr("PMIX_RANK=3 says that this process is one of several, but nothing says of "
                        "how many"));
  EXPECT_THAT(refusal({{"RANK_ID", "3"}, {"RANK_SIZE", "4"}}),
              HasSubstr("RANK_ID=3 of RANK_SIZE=4 but RANK_TABLE_FILE is not set"));
  EXPECT_THAT(refusal({{"JOB_COMPLETION_INDEX", "2"}}),
              HasSubstr("JOB_COMPLETION_INDEX is set (2) but WORLD_SIZE is not"));
  EXPECT_THAT(refusal(with(kPod, {{"MASTER_ADDR", ""}})),
              HasSubstr("JOB_COMPLETION_INDEX=2 of WORLD_SIZE=3 but MASTER_ADDR is not set"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_PORT", ""}})), HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(refusal({{"RANK_TABLE_FILE", "table.json"}}),
              HasSubstr("RANK_TABLE_FILE is set (table.json) but RANK_ID is not"));
  EXPECT_THAT(refusal({{"MS_ROLE", "MS_WORKER"}, {"MS_WORKER_NUM", "8"}}),
              AllOf(HasSubstr("MS_ROLE=MS_WORKER of MS_WORKER_NUM=8"), HasSubstr("trireme launch")));
  EXPECT_THAT(refusal({{"MS_ROLE", "MS_SCHED"}, {"MS_WORKER_NUM", "1"}}),
              HasSubstr("MS_ROLE=MS_SCHED of MS_WORKER_NUM=1"));
  for (const auto& [rank, world] :
       {std::pair{"RANK", "WORLD_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}}) {
    EXPECT_THAT(refusal({{rank, "1"}}), HasSubstr(std::string(rank) + " is set (1) but " + world + " is not"));
    EXPECT_THAT(refusal({{world, "2"}}), HasSubstr(std::string(world) + " is set (2) but " + rank + " is not"));
  }
}

TEST(Start, ValuesThatAreNoPlaceInTheJobAreRefused) {
  EXPECT_EQ(refusal(with(kTorchrun, {{"RANK", "one"}})),
            "environment variable RANK='one': it must be a whole number from 0 to 65535");
  EXPECT_EQ(refusal(with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "0"}})),
            "environment variable OMPI_COMM_WORLD_SIZE='0': it must be a whole number from 1 to 65536");
  EXPECT_EQ(refusal(with(kMpich, {{"PMI_RANK", "2"}})), "environment: PMI_RANK=2 but PMI_SIZE=2; ranks go from 0 to 1");
  EXPECT_EQ(refusal(with(kSrun, {{"SLURM_LOCALID", "3"}})),
            "environment: SLURM_LOCALID=3 but ranks on this host=3; local ranks go from 0 to 2");
  EXPECT_EQ(refusal(with(kSrun, {{"SLURM_NODEID", "2"}})),
            "environment: SLURM_NODEID=2 but SLURM_STEP_TASKS_PER_NODE=3(x2) has 2 hosts");
  EXPECT_EQ(refusal(with(kRankTable, {{"RANK_TABLE_FILE", "gone.json"}})),
            "environment: RANK_TABLE_FILE=gone.json: no file gone.json");
  EXPECT_EQ(refusal(with(kRankTable, {{"RANK_ID", "3"}})),
            "environment: RANK_ID=3 but the rank table 'table.json' has ranks 0 to 2");
  EXPECT_EQ(refusal(with(kPod, {{"MASTER_PORT", "70000"}})),
            "environment variable MASTER_PORT='70000': it must be a whole number from 1 to 65535");
}

// torchrun's own store listens on MASTER_PORT.
TEST(Start, ThePortOfTorchrunsAgentIsLeftToIt) {
  EXPECT_EQ(start_of(kTorchrun).master_port, 29500);
  EXPECT_EQ(start_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).master_port, 29501);
}

TEST(Start, PortsDerivedFromAJobAreTheSameOnAllItsRanksAndDifferBetweenJobs) {
  const RankInfo one = start_of(kSrun);
  EXPECT_EQ(start_of(with(kSrun, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})).master_port, one.master_port);
  EXPECT_NE(start_of(with(kSrun, {{"SLURM_JOB_ID", "72"}})).master_port, one.master_port);
  EXPECT_GE(one.master_port, 15'000);
  EXPECT_LT(one.master_port, 30'000);
}

TEST(Start, AnAddressThatIsGivenBeatsADerivedOne) {
  const RankInfo info = start_of(with(kSrun, {{"MASTER_ADDR", "10.1.1.1"}, {"MASTER_PORT", "400"}}));
  EXPECT_EQ(info.master_address, "10.1.1.1");
  EXPECT_EQ(info.master_port, 400);
}

// Every pair of role and number: a scheduler is one whatever the number, and no rank is made of half a description.
TEST(Start, TheRoleOfADynamicClusterDoesNotDependOnItsSize) {
  const auto role = [](Environment env) {
    try {
      return dynamic_cluster_role(env);
    } catch (const Error& e) {
      return e.text();
    }
  };
  for (const char* ranks : {"1", "2", "65536"}) {
    EXPECT_EQ(role({{"MS_ROLE", "MS_SCHED"}, {"MS_WORKER_NUM", ranks}}), "MS_SCHED");
    EXPECT_EQ(role({{"MS_ROLE", "MS_WORKER"}, {"MS_WORKER_NUM", ranks}}), "MS_WORKER");
    EXPECT_THAT(role({{"MS_ROLE", "MS_PSERVER"}, {"MS_WORKER_NUM", ranks}}),
                HasSubstr("there are no parameter servers"));
    EXPECT_THAT(role({{"MS_ROLE", "sched"}, {"MS_WORKER_NUM", ranks}}), HasSubstr("it must be MS_WORKER, MS_SCHED"));
    EXPECT_THAT(role({{"MS_ROLE", "MS_WORKER"}, {"MS_WORKER_NUM", ranks}, {"MS_SERVER_NUM", "1"}}),
                HasSubstr("MS_SERVER_NUM=1"));
  }
  EXPECT_EQ(role({}), "");
  EXPECT_EQ(role({{"MS_WORKER_NUM", "1"}}), "");
  EXPECT_THAT(role({{"MS_WORKER_NUM", "2"}}), HasSubstr("MS_WORKER_NUM=2 but MS_ROLE is not set"));
  for (const char* one : {"MS_WORKER", "MS_SCHED"}) {
    EXPECT_THAT(role({{"MS_ROLE", one}}), HasSubstr("MS_WORKER_NUM is not set"));
    EXPECT_THAT(role({{"MS_ROLE", one}, {"MS_WORKER_NUM", "0"}}), HasSubstr("MS_WORKER_NUM"));
    EXPECT_THAT(role(with(kTorchrun, {{"MS_ROLE", one}, {"MS_WORKER_NUM", "1"}})),
                AllOf(HasSubstr(fmt::format("MS_ROLE={} but RANK=", one)), HasSubstr("torchrun")));
    // These start processes in which others may start ranks.
    EXPECT_EQ(role(with(kSrun, {{"MS_ROLE", one}, {"MS_WORKER_NUM", "6"}})), one);
    EXPECT_EQ(role(with(kPod, {{"MS_ROLE", one}, {"MS_WORKER_NUM", "6"}})), one);
  }
}

}  // namespace
}  // namespace trireme::launch::start_test

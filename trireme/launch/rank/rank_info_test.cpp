#include "trireme/launch/rank/rank_info.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "trireme/launch/rank/failure.h"

namespace trireme::launch::rank_info_test {
namespace {

using testing::HasSubstr;

class RankInfoTest : public testing::Test {
 protected:
  RankInfoTest() {
    char path[] = "/tmp/trireme-rank-test-XXXXXX";
    dir_ = mkdtemp(path);
    for (const char* name : kNames) unsetenv(name);
  }
  ~RankInfoTest() override {
    std::filesystem::remove_all(dir_);
    for (const char* name : kNames) unsetenv(name);
  }
  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  std::string secret_file(const std::string& text, mode_t mode) const {
    const std::string path = dir_ + "/secret";
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  void set_job(const char* rank, const char* world) const {
    set("RANK", rank);
    set("WORLD_SIZE", world);
    set("MASTER_ADDR", "10.0.0.6");
    set("MASTER_PORT", "29500");
    set("TRIREME_SECRET_FILE", secret_file(std::string(64, 'a'), 0600));
  }
  static std::string refusal() {
    try {
      (void)find_rank();
    } catch (const Error& e) {
      EXPECT_NE(e.kind(), ErrorKind::kInternal);
      return e.text();
    }
    return "no error";
  }

  static constexpr const char* kNames[] = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "TRIREME_SECRET_FILE",
                                           "TRIREME_SECRET",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "TRIREME_ERROR_FD"};
  std::string dir_;
};

TEST_F(RankInfoTest, WithoutVariablesThereIsOneRank) {
  const RankInfo info = find_rank();

  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(info.world, 1);
  EXPECT_EQ(info.local_world, 1);
  EXPECT_EQ(info.started_by, "itself");
  EXPECT_FALSE(info.secret.has_value());
}

TEST_F(RankInfoTest, TheLaunchersVariablesAreRead) {
  set_job("5", "8");
  set("LOCAL_RANK", "1");
  set("LOCAL_WORLD_SIZE", "4");

  const RankInfo info = find_rank();

  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.world, 8);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_world, 4);
  EXPECT_EQ(info.master_address, "10.0.0.6");
  EXPECT_EQ(info.master_port, 29500);
  EXPECT_EQ(comm::to_hex(*info.secret), std::string(64, 'a'));
}

TEST_F(RankInfoTest, MpirunsVariablesAreReadAndNeedNoStore) {
  set("OMPI_COMM_WORLD_RANK", "3");
  set("OMPI_COMM_WORLD_SIZE", "4");
  set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");

  const RankInfo info = find_rank();

  EXPECT_EQ(info.rank, 3);
  EXPECT_EQ(info.world, 4);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.started_by, "mpirun");
}

TEST_F(RankInfoTest, HalfAPairIsRefused) {
  set("RANK", "1");
  EXPECT_EQ(refusal(),
            "environment: RANK is set (1) but WORLD_SIZE is not; a rank of a job needs both, and a "
            "process that is to run alone neither");
  unsetenv("RANK");
  set("WORLD_SIZE", "4");
  EXPECT_EQ(refusal(), "environment: WORLD_SIZE is set (4) but RANK is not; a rank of a job needs both");
}

TEST_F(RankInfoTest, ARankOutsideTheWorldIsRefused) {
  set_job("4", "4");
  EXPECT_EQ(refusal(), "environment: RANK=4 but WORLD_SIZE=4; ranks go from 0 to 3");
}

TEST_F(RankInfoTest, ALocalRankOutsideTheHostIsRefused) {
  set_job("1", "4");
  set("LOCAL_RANK", "2");
  set("LOCAL_WORLD_SIZE", "2");
  EXPECT_EQ(refusal(), "environment: LOCAL_RANK=2 but LOCAL_WORLD_SIZE=2; local ranks go from 0 to 1");
}

TEST_F(RankInfoTest, MalformedNumbersAreRefused) {
  set("RANK", "one");
  set("WORLD_SIZE", "4");
  EXPECT_EQ(refusal(), "environment variable RANK='one': it must be a whole number from 0 to 65535");
}

TEST_F(RankInfoTest, TwoLaunchersThatDisagreeAreRefused) {
  set_job("1", "4");
  set("OMPI_COMM_WORLD_RANK", "0");
  set("OMPI_COMM_WORLD_SIZE", "4");
  EXPECT_EQ(refusal(),
            "environment: RANK=1 of WORLD_SIZE=4 but OMPI_COMM_WORLD_RANK=0 of OMPI_COMM_WORLD_SIZE=4; "
            "unset the variables of one of them");
}

TEST_F(RankInfoTest, AJobWithoutAStoreOrItsLaunchersSecretIsRefused) {
  set_job("1", "4");
  unsetenv("MASTER_PORT");
  EXPECT_EQ(refusal(),
            "environment: RANK=1 of WORLD_SIZE=4 but MASTER_PORT is not set; ranks meet at the store "
            "at MASTER_ADDR:MASTER_PORT, which 'trireme launch' and torchrun provide");
  set("MASTER_PORT", "29500");
  set("TRIREME_ERROR_FD", "1000");
  unsetenv("TRIREME_SECRET_FILE");
  EXPECT_EQ(refusal(),
            "environment: RANK=1 of WORLD_SIZE=4 but neither TRIREME_SECRET_FILE nor TRIREME_SECRET "
            "is set; start the ranks with 'trireme launch', which gives them the job's secret");
}

TEST_F(RankInfoTest, TheSecretMayBeInTheEnvironment) {
  set_job("1", "4");
  unsetenv("TRIREME_SECRET_FILE");
  set("TRIREME_SECRET", std::string(64, 'b'));
  EXPECT_EQ(comm::to_hex(*find_rank().secret), std::string(64, 'b'));
  set("TRIREME_SECRET", "b");
  EXPECT_EQ(refusal(), "job secret: it has 1 characters; it must have 64 hexadecimal digits");
  const std::string path = secret_file(std::string(64, 'a'), 0600);
  set("TRIREME_SECRET_FILE", path);
  set("TRIREME_SECRET", std::string(64, 'b'));
  EXPECT_EQ(refusal(), "job secret: TRIREME_SECRET and TRIREME_SECRET_FILE='" + path + "' differ; unset one of them");
}

TEST_F(RankInfoTest, ASecretThatOthersCanReadOrThatIsNoneIsRefused) {
  set_job("1", "4");
  const std::string path = secret_file(std::string(64, 'a'), 0640);
  EXPECT_EQ(refusal(), "job secret: '" + path + "' has mode 0640, so others can read it; make it 0600");
  secret_file("short", 0600);
  EXPECT_EQ(refusal(), "job secret: it has 5 characters; it must have 64 hexadecimal digits");
  set("TRIREME_SECRET_FILE", dir_ + "/none");
  EXPECT_EQ(refusal(), "job secret: cannot open TRIREME_SECRET_FILE='" + dir_ + "/none' (No such file or directory)");
}

TEST_F(RankInfoTest, AFailureIsReportedOnlyToALauncher) {
  Error error(ErrorKind::kComm, "rank 2 is gone");
  error.note("at step 7");
  EXPECT_FALSE(report_failure(error));

  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  set("TRIREME_ERROR_FD", std::to_string(ends[1]));
  EXPECT_TRUE(report_failure(error));
  char buffer[4096];
  const ssize_t n = read(ends[0], buffer, sizeof buffer);
  close(ends[0]);
  close(ends[1]);

  ASSERT_GT(n, 0);
  const auto failure = decode(std::string_view(buffer, static_cast<size_t>(n)));
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind, ErrorKind::kComm);
  EXPECT_EQ(failure->text, "rank 2 is gone\n  at step 7");
}

TEST_F(RankInfoTest, BytesThatAreNoFailureAreNotTakenForOne) {
  for (const char* text :
       {"", "exec 002", "trireme-failure x\nabc", "trireme-failure 99 1.0\nabc", "\n", "trireme-failure 1 nan\nabc",
        "trireme-failure 1 1e300\nabc", "trireme-failure 99999999999 1.0\nabc", "trireme-failure 1 1.0x\nabc"}) {
    EXPECT_FALSE(decode(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace trireme::launch::rank_info_test

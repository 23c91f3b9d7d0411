#include "trireme/launch/start/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/comm/stores/tcp_store.h"

namespace trireme::launch::rendezvous_test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr milliseconds kLong{60'000};
constexpr milliseconds kShort{150};

// Ranks of these tests are threads; TMPDIR is a folder of the test's own.
class RendezvousTest : public testing::Test {
 protected:
  RendezvousTest() {
    const char* before = std::getenv("TMPDIR");
    if (before != nullptr) before_ = before;
    setenv("TMPDIR", folder_.path().c_str(), 1);
  }
  ~RendezvousTest() override { before_ ? setenv("TMPDIR", before_->c_str(), 1) : unsetenv("TMPDIR"); }

  static RankInfo rank(int rank, bool one_host = true) {
    RankInfo info{.rank = rank, .world = 2, .started_by = "torchrun", .evidence = "RANK of WORLD_SIZE=2"};
    info.one_host = one_host;
    info.master_address = "127.0.0.1";
    info.job = "test";
    return info;
  }
  // Both ranks meet, and the second reads what the first wrote.
  static void expect_meeting(const RankInfo& first, const RankInfo& second, bool insecure = false) {
    std::string error;
    std::string got;
    std::thread other([&] {
      try {
        got = meet(second, insecure, kLong).store->get("key", kLong);
      } catch (const Error& e) {
        error = e.text();
      }
    });
    const Meeting meeting = meet(first, insecure, kLong);
    meeting.store->set("key", "value");
    other.join();
    EXPECT_EQ(got, "value") << error;
  }
  static std::string refusal(const RankInfo& info, bool insecure = false, milliseconds deadline = kShort) {
    try {
      return meet(info, insecure, deadline).place;
    } catch (const Error& e) {
      EXPECT_NE(e.kind(), ErrorKind::kInternal);
      return e.text();
    }
  }
  std::string private_folder() const { return fmt::format("{}/trireme-{}", folder_.path(), geteuid()); }

  TempDirectory folder_;
  std::optional<std::string> before_;
};

TEST_F(RendezvousTest, RanksOfAHostMeetByAFileThatOthersCannotRead) {
  {
    const Meeting first = meet(rank(0), false, kLong);
    const std::vector<std::string> files = list_directory(private_folder());
    ASSERT_EQ(files.size(), 1U);
    struct stat info {};
    ASSERT_EQ(stat(join_path(private_folder(), files[0]).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600U);
    ASSERT_EQ(stat(private_folder().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700U);
    first.store->set("key", "value");
    EXPECT_EQ(meet(rank(1), false, kLong).store->get("key", kLong), "value");
  }
  EXPECT_TRUE(list_directory(private_folder()).empty());  // gone with rank 0
}

TEST_F(RendezvousTest, TheOrderOfStartingDoesNotMatter) {
  for (int i = 0; i < 5; ++i) expect_meeting(rank(0), rank(1));
}

TEST_F(RendezvousTest, TheFileOfADeadJobIsNotTakenForThisOnes) {
  std::string path;
  {
    const Meeting first = meet(rank(0), false, kLong);
    path = join_path(private_folder(), list_directory(private_folder())[0]);
    std::filesystem::copy_file(path, folder_ / "copy");
  }
  std::filesystem::copy_file(folder_ / "copy", path);  // as if rank 0 had been killed
  EXPECT_THAT(refusal(rank(1)), AllOf(HasSubstr("[rank 1 of 2] launch: rank 0 did not start on this host within "),
                                      HasSubstr("start all 2 ranks")));
  expect_meeting(rank(0), rank(1));
}

TEST_F(RendezvousTest, ASecondJobOfTheSameNameIsRefused) {
  const Meeting first = meet(rank(0), false, kLong);
  EXPECT_THAT(refusal(rank(0)), HasSubstr("rank 0 of a job with the same name (torchrun 'test') runs on this host"));
}

TEST_F(RendezvousTest, AFolderThatOthersCanEnterIsRefused) {
  std::filesystem::create_directory(private_folder());
  chmod(private_folder().c_str(), 0755);
  EXPECT_THAT(refusal(rank(0)), HasSubstr("must be a folder of this user with mode 0700"));
  std::filesystem::remove(private_folder());
  std::filesystem::create_symlink(folder_.path(), private_folder());
  EXPECT_THAT(refusal(rank(0)), HasSubstr("must be a folder of this user with mode 0700"));
}

TEST_F(RendezvousTest, AcrossHostsASecretIsAskedFor) {
  RankInfo info = rank(0, false);
  info.master_port = 29'500;
  EXPECT_THAT(refusal(info), AllOf(HasSubstr("ranks may be on several hosts, and none was given a secret"),
                                   HasSubstr("TRIREME_SECRET_FILE=FILE"), HasSubstr("--insecure")));
  info.master_port = 0;
  EXPECT_THAT(refusal(info), HasSubstr("nothing tells where rank 0 is; set MASTER_ADDR and MASTER_PORT"));
}

// A free port that nobody else will take: the one of a store that is there until the object goes.
uint16_t port_near(const comm::TcpStoreServer& taken) {
  return static_cast<uint16_t>(taken.port() > 65'000 ? taken.port() - 4 : taken.port());
}

TEST_F(RendezvousTest, AcrossHostsThePortMayBeTakenBySomeoneElse) {
  const comm::TcpStoreServer taken({.secret = comm::random_secret()});
  RankInfo first = rank(0, false);
  first.master_port = port_near(taken);
  first.secret = comm::random_secret();
  RankInfo second = first;
  second.rank = 1;
  expect_meeting(first, second);
}

TEST_F(RendezvousTest, InsecureLetsRanksMeetWithoutASecret) {
  const comm::TcpStoreServer taken({.secret = comm::random_secret()});
  RankInfo first = rank(0, false);
  first.master_port = port_near(taken);
  RankInfo second = first;
  second.rank = 1;
  expect_meeting(first, second, true);
}

TEST_F(RendezvousTest, AnotherSecretThanRankZerosDoesNotLetIn) {
  const comm::TcpStoreServer taken({.secret = comm::random_secret()});
  RankInfo first = rank(0, false);
  first.master_port = port_near(taken);
  first.secret = comm::random_secret();
  const Meeting meeting = meet(first, false, kLong);
  RankInfo second = first;
  second.rank = 1;
  second.secret = comm::random_secret();
  EXPECT_THAT(refusal(second),
              AllOf(HasSubstr(fmt::format("[rank 1 of 2] launch: the store at 127.0.0.1:")),
                    HasSubstr(" does not accept the job secret of this rank; it is different from rank 0's, or")));
  EXPECT_GE(meeting.refused(), 1);
  second.one_host = true;
  first.one_host = true;
  const Meeting by_file = meet(first, false, kLong);
  EXPECT_THAT(refusal(second), HasSubstr("this rank has a different secret from rank 0"));
}

TEST_F(RendezvousTest, AnAddressOfAnotherHostIsNotRankZeros) {
  RankInfo info = rank(0, false);
  info.master_address = "203.0.113.77";
  info.master_port = 29'500;
  info.secret = comm::random_secret();
  EXPECT_THAT(refusal(info), AllOf(HasSubstr("rank 0 cannot listen at 203.0.113.77"),
                                   HasSubstr("MASTER_ADDR must be an address of its host")));
}

}  // namespace
}  // namespace trireme::launch::rendezvous_test

#include "trireme/launch/start/slurm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch::slurm_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::string> expand_hosts(std::string_view list) {
  const HostList hosts(list);
  std::vector<std::string> out;
  for (size_t i = 0; i < hosts.size(); ++i) out.push_back(hosts[i]);
  return out;
}

TEST(Slurm, HostsOfACompressedList) {
  EXPECT_THAT(expand_hosts("login"), ElementsAre("login"));
  EXPECT_THAT(expand_hosts("a,b-1.net"), ElementsAre("a", "b-1.net"));
  EXPECT_THAT(expand_hosts("n[1-3,7],login"), ElementsAre("n1", "n2", "n3", "n7", "login"));
  EXPECT_THAT(expand_hosts("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(expand_hosts("n[098-101]x"), ElementsAre("n098x", "n099x", "n100x", "n101x"));
  EXPECT_THAT(expand_hosts("r[1-2]n[0,5]"), ElementsAre("r1n0", "r1n5", "r2n0", "r2n5"));
  EXPECT_THAT(expand_hosts("a[1,3-4]b[07-08]c,x"),
              ElementsAre("a1b07c", "a1b08c", "a3b07c", "a3b08c", "a4b07c", "a4b08c", "x"));
  EXPECT_THAT(expand_hosts("[1-2]"), ElementsAre("1", "2"));
  EXPECT_THAT(expand_hosts("n[1-65536]"), SizeIs(65'536));
  EXPECT_EQ(HostList("n[1-65536]")[65'535], "n65536");
}

TEST(Slurm, WhatIsNoListOfHostsIsRefused) {
  const auto why = [](const std::string& list) -> std::string {
    try {
      return fmt::format("{} hosts", expand_hosts(list).size());
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
      return e.text();
    }
  };
  EXPECT_EQ(why("n[1-2"),
            "SLURM's list of hosts 'n[1-2': a bracket is not closed; it must look like "
            "'n[1-3,7],login'");
  EXPECT_THAT(why("n1]"), HasSubstr("a bracket is closed that was not opened"));
  EXPECT_THAT(why("n[1[2]]"), HasSubstr("a bracket inside a bracket"));
  EXPECT_THAT(why(""), HasSubstr("a name is empty"));
  EXPECT_THAT(why("a,,b"), HasSubstr("a name is empty"));
  EXPECT_THAT(why("n[]"), HasSubstr("'' is not a range of numbers"));
  EXPECT_THAT(why("n[3-1]"), HasSubstr("'3-1' is not a range of numbers"));
  EXPECT_THAT(why("n[1-x]"), HasSubstr("'1-x' is not a range of numbers"));
  EXPECT_THAT(why("n[-1]"), HasSubstr("'-1' is not a range of numbers"));
  EXPECT_THAT(why("n[1-]"), HasSubstr("'1-' is not a range of numbers"));
  EXPECT_THAT(why("n[0-99999999999]"), HasSubstr("is not a range of numbers"));
  EXPECT_THAT(why("n[1-65537]"), HasSubstr("more than 65536 hosts"));
  EXPECT_THAT(why("n[1-300][1-300]"), HasSubstr("more than 65536 hosts"));
  std::string brackets = "[1-65536]";
  for (int i = 0; i < 1000; ++i) brackets += "[1]";
  EXPECT_THAT(why(brackets), HasSubstr("a name has more than 253 characters"));
  EXPECT_EQ(why(std::string(253, 'n')), "1 hosts");
}

TEST(Slurm, RanksOnEachHost) {
  EXPECT_THAT(expand_tasks("4"), ElementsAre(4));
  EXPECT_THAT(expand_tasks("4(x2),3,1(x3)"), ElementsAre(4, 4, 3, 1, 1, 1));
  for (const char* wrong : {"", "x", "4(x)", "4(x2", "0", "4(x0)", "4,,4", "4(x99999)", "-1"}) {
    EXPECT_THROW((void)expand_tasks(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace trireme::launch::slurm_test

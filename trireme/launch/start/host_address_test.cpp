#include "trireme/launch/start/host_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::launch::host_address_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

TEST(HostAddress, OthersReachAHostAtWhatIsNotLoopback) {
  EXPECT_EQ(reachable_of("node0", {"10.0.0.5", "10.1.0.5"}), "10.0.0.5");
  EXPECT_EQ(reachable_of("node0", {"127.0.1.1", "10.0.0.5"}), "10.0.0.5");
  EXPECT_EQ(reachable_of("node0", {"::1", "127.0.1.1", "fd00::5"}), "fd00::5");
  EXPECT_EQ(reachable_of("node0", {"127.0.1.1"}), "");
  EXPECT_EQ(reachable_of("node0", {"::1", "::ffff:127.0.0.1"}), "");
  EXPECT_EQ(reachable_of("127.0.0.1", {"127.0.0.1"}), "127.0.0.1") << "all nodes are on this host";
  EXPECT_EQ(reachable_of("::1", {"::1"}), "::1");
  EXPECT_EQ(reachable_of("localhost", {"::1", "127.0.0.1"}), "::1");
}

TEST(HostAddress, AddressesOfANameAreNumeric) {
  EXPECT_THAT(addresses_of("localhost"), Contains(testing::AnyOf("127.0.0.1", "::1")));
  EXPECT_EQ(addresses_of("192.0.2.1"), std::vector<std::string>{"192.0.2.1"});
  EXPECT_THROW(addresses_of("no-such-host.invalid"), Error);
}

// As many systems have it for their own name.
TEST(HostAddress, ANameThatIsLoopbackIsRefusedWithTheFileThatSaysSo) {
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
  std::string text;
  try {
    const std::string address = address_for_others(name, "launch: --master");
    EXPECT_FALSE(is_loopback(address)) << address;
    return;
  } catch (const Error& e) {
    text = e.text();
  }
  EXPECT_THAT(text, AllOf(HasSubstr("launch: --master"), testing::AnyOf(HasSubstr("/etc/hosts"), HasSubstr("found"))));
}

}  // namespace
}  // namespace trireme::launch::host_address_test

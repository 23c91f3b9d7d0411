#include "trireme/launch/start/store_address.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch::store_address_test {
namespace {

TEST(StoreAddress, ReadsBackAsItWas) {
  const StoreAddress address{.host = "10.0.0.5", .port = 4000, .secret = comm::random_secret()};
  const auto back = parse_store_address(to_string(address));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->host, address.host);
  EXPECT_EQ(back->port, address.port);
  EXPECT_EQ(back->secret, address.secret);
  const auto without = parse_store_address(to_string({.host = "10.0.0.5", .port = 4000, .secret = {}}));
  ASSERT_TRUE(without);
  EXPECT_FALSE(without->secret);
}

TEST(StoreAddress, AnythingElseIsNone) {
  const std::string hex(64, '0');
  for (const std::string& text :
       {std::string(), "trireme-rendezvous-1 10.0.0.5 4000 " + hex, "trireme-rendezvous-1  4000 " + hex + "\n",
        "trireme-rendezvous-1 10.0.0.5 65536 " + hex + "\n", "trireme-rendezvous-1 10.0.0.5 40x " + hex + "\n",
        "trireme-rendezvous-2 10.0.0.5 4000 " + hex + "\n", "trireme-rendezvous-1 10.0.0.5 4000 " + hex + "\nmore"}) {
    EXPECT_FALSE(parse_store_address(text)) << text;
  }
  EXPECT_THROW(parse_store_address("trireme-rendezvous-1 10.0.0.5 4000 00\n"), Error);
}

}  // namespace
}  // namespace trireme::launch::store_address_test

#include "trireme/launch/start/site.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

TEST(Site, ReadsBackAsItWas) {
  const Site site{.address = "10.0.0.5", .port = 4000, .secret = comm::random_secret()};
  const auto back = parse_site(to_string(site));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->address, site.address);
  EXPECT_EQ(back->port, site.port);
  EXPECT_EQ(back->secret, site.secret);
  const auto without = parse_site(to_string({.address = "10.0.0.5", .port = 4000, .secret = {}}));
  ASSERT_TRUE(without);
  EXPECT_FALSE(without->secret);
}

TEST(Site, AnythingElseIsNone) {
  const std::string hex(64, '0');
  for (const std::string& text :
       {std::string(), "trireme-rendezvous-1 10.0.0.5 4000 " + hex, "trireme-rendezvous-1  4000 " + hex + "\n",
        "trireme-rendezvous-1 10.0.0.5 65536 " + hex + "\n", "trireme-rendezvous-1 10.0.0.5 40x " + hex + "\n",
        "trireme-rendezvous-2 10.0.0.5 4000 " + hex + "\n", "trireme-rendezvous-1 10.0.0.5 4000 " + hex + "\nmore"}) {
    EXPECT_FALSE(parse_site(text)) << text;
  }
  EXPECT_THROW(parse_site("trireme-rendezvous-1 10.0.0.5 4000 00\n"), Error);
}

}  // namespace
}  // namespace trireme::launch

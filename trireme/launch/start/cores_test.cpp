#include "trireme/launch/start/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "trireme/base/error.h"

namespace trireme::launch::cores_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Units are numbered core by core: core k has 2 k and 2 k + 1, node 0 the cores 0 to 7.
const char* const kTwoSockets = "package:2 numa:1 core:8 pu:2";

std::vector<int> up_to(int count) {
  std::vector<int> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::vector<std::string> texts(const std::string& synthetic, const std::vector<int>& allowed, size_t ranks,
                               size_t threads) {
  std::vector<std::string> out;
  for (const std::vector<int>& units : assign_cores(cores_of(synthetic), allowed, ranks, threads))
    out.push_back(units_text(units));
  return out;
}

TEST(Cores, a_machine_is_cores_of_nodes_with_units) {
  const std::vector<Core> cores = cores_of(kTwoSockets);
  ASSERT_THAT(cores, SizeIs(16));
  EXPECT_THAT(cores[7].units, ElementsAre(14, 15));
  EXPECT_EQ(cores[7].node, 0);
  EXPECT_EQ(cores[8].node, 1);
  EXPECT_THROW(cores_of("two sockets"), Error);
}

TEST(Cores, threads_get_whole_cores_while_there_are_enough) {
  EXPECT_THAT(texts(kTwoSockets, up_to(32), 4, 4), ElementsAre("0-7", "8-15", "16-23", "24-31"));
  EXPECT_THAT(texts(kTwoSockets, up_to(32), 2, 1), ElementsAre("0-1", "2-3"));
}

TEST(Cores, where_cores_are_few_a_thread_gets_a_unit) {
  EXPECT_THAT(texts(kTwoSockets, up_to(32), 4, 8), ElementsAre("0-7", "8-15", "16-23", "24-31"));
  EXPECT_THAT(texts("package:1 core:2 pu:2", up_to(4), 4, 1), ElementsAre("0", "1", "2", "3"));
}

TEST(Cores, a_rank_stays_on_one_node_where_it_fits) {
  EXPECT_THAT(texts(kTwoSockets, up_to(32), 2, 5), ElementsAre("0-9", "16-25"));
  EXPECT_THAT(texts(kTwoSockets, up_to(32), 3, 5),
              ElementsAre("0-9", "16-25", "10-15,26-29"));  // the last fits on none
}

TEST(Cores, what_is_not_allowed_is_not_used) {
  EXPECT_THAT(texts(kTwoSockets, {3, 4, 5, 20}, 2, 1), ElementsAre("3", "4-5"));
  EXPECT_THAT(texts(kTwoSockets, {3, 4, 5, 20}, 4, 1), ElementsAre("3", "4", "5", "20"));
  EXPECT_THAT(texts(kTwoSockets, {3, 4, 5, 20}, 5, 1), IsEmpty());
}

TEST(Cores, no_unit_is_given_twice) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 draw(seed);
    std::vector<int> allowed;
    for (int unit = 0; unit < 32; ++unit) {
      if (draw() % 3 != 0) allowed.push_back(unit);
    }
    const size_t ranks = 1 + draw() % 8;
    const size_t threads = 1 + draw() % 6;
    const std::vector<std::vector<int>> given = assign_cores(cores_of(kTwoSockets), allowed, ranks, threads);
    ASSERT_THAT(given, SizeIs(ranks * threads <= allowed.size() ? ranks : 0));
    std::set<int> seen;
    for (const std::vector<int>& units : given) {
      EXPECT_GE(units.size(), threads);
      for (const int unit : units) {
        EXPECT_TRUE(seen.insert(unit).second) << unit;
        EXPECT_THAT(allowed, testing::Contains(unit));
      }
    }
  }
}

}  // namespace
}  // namespace trireme::launch::cores_test

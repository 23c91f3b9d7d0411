#include "trireme/launch/rank/symbols.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <random>

#include "trireme/launch/rank/process_state.h"

namespace trireme::launch::symbols_test {
namespace {

using testing::HasSubstr;

TEST(Symbols, AFunctionIsFoundInItsFileAndNoDamageIsTrusted) {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Symbols own(getpid());
  EXPECT_THAT(own.name_at(reinterpret_cast<uintptr_t>(&state_of)),
              HasSubstr("trireme::launch::state_of(int) in launch_test"));
  EXPECT_EQ(own.name_at(1), "0x1");
  EXPECT_EQ(function_at("", 0), "");
  std::mt19937 random(3);
  std::string damaged = bytes.substr(0, 4096);
  for (int i = 0; i < 500; ++i) {
    damaged[16 + random() % (damaged.size() - 16)] = static_cast<char>(random());
    EXPECT_LE(function_at(damaged, random() % 8192).size(), 200);  // whatever it says, it ends
  }
}

}  // namespace
}  // namespace trireme::launch::symbols_test

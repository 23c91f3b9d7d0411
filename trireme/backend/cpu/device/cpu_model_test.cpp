#include "trireme/backend/cpu/device/cpu_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace trireme::cpu_model_test {
namespace {

using testing::HasSubstr;

// The system reads the same words.
TEST(CpuModel, is_what_the_system_says) {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line) && !line.starts_with("model name")) continue;
  if (line.find(": ") == std::string::npos) GTEST_SKIP() << "the system names no model";
  std::string name = line.substr(line.find(": ") + 2);
  while (name.ends_with(' ')) name.pop_back();
  EXPECT_EQ(cpu_model(), name);
}

TEST(CpuModel, ranks_on_different_ones_are_told_which) {
  EXPECT_EQ(unlike_cpus({"A"}), "");
  EXPECT_EQ(unlike_cpus({"A", "A", "A"}), "");
  EXPECT_THAT(unlike_cpus({"A", "A", "B", "C"}), HasSubstr("rank 0 on 'A', rank 2 on 'B'"));
}

}  // namespace
}  // namespace trireme::cpu_model_test

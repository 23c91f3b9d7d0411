#include "trireme/backend/cpu/device/cpu_model.h"

#include <gtest/gtest.h>

#include <fstream>

namespace trireme::cpu_model_test {
namespace {

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

}  // namespace
}  // namespace trireme::cpu_model_test

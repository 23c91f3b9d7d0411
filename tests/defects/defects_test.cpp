// Would the tests notice? Each defect of the compiler and the runtime (base/seeded_defect.h) is
// switched on alone, and the harness of tests/equivalence must find it, by a wrong result or by a
// check that refuses the program or the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "tests/equivalence/run.h"
#include "trireme/base/seeded_defect.h"

namespace trireme {
namespace {

std::string switched_on;
std::atomic<bool> was_reached = false;

}  // namespace

bool seeded_defect(std::string_view name) {
  if (name != switched_on) return false;
  was_reached = true;
  return true;
}

namespace {

using equivalence::Case;
using equivalence::Tally;

constexpr uint32_t kFirstSeed = 1;
constexpr uint32_t kCases = 720;  // at most, for each defect

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The defects that stand in the sources, in the order of files and lines.
std::vector<std::string> all_defects() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(TRIREME_SOURCE_DIR "/trireme")) {
    if (entry.path().extension() == ".cpp") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> out;
  for (const std::filesystem::path& file : files) {
    const std::string text = read(file);
    constexpr std::string_view kCall = "seeded_defect(\"";
    for (size_t at = text.find(kCall); at != std::string::npos; at = text.find(kCall, at)) {
      at += kCall.size();
      std::string name = text.substr(at, text.find('"', at) - at);
      if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(std::move(name));
    }
  }
  return out;
}

// What finds it: first the cases that once found something, then random ones.
std::string found_by() {
  for (const auto& entry :
       std::filesystem::directory_iterator(TRIREME_SOURCE_DIR "/tests/equivalence/found")) {
    const Case test = equivalence::parse_case(read(entry.path()));
    const equivalence::Verdict verdict = equivalence::run_cases({&test, 1}).front();
    if (verdict.is_bad())
      return fmt::format("{}: {}", entry.path().filename().string(), verdict.text);
  }
  return equivalence::run_seeds(kFirstSeed, kCases, false).failure;
}

class Defects : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    switched_on = GetParam();
    was_reached = false;
  }
  void TearDown() override { switched_on.clear(); }
};

TEST_P(Defects, are_found) {
  const std::string found = found_by();
  EXPECT_TRUE(was_reached) << "no case comes by this defect";
  EXPECT_NE(found, "") << kCases << " cases do not notice it";
  std::cout << found.substr(0, 220) << '\n';
}

std::string as_name(const testing::TestParamInfo<std::string>& info) {
  std::string out;
  for (const char c : info.param) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += c;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Seeded, Defects, testing::ValuesIn(all_defects()), as_name);

TEST(SeededDefects, are_many) {
  EXPECT_GE(all_defects().size(), 30U);
}

TEST(SeededDefects, without_one_all_cases_agree) {
  EXPECT_EQ(equivalence::run_seeds(kFirstSeed, 96, false).failure, "");
}

}  // namespace
}  // namespace trireme

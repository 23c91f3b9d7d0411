// Would the tests notice? Each defect of the compiler and the runtime (base/seeded_defect.h) is
// switched on alone, and the harness of tests/equivalence must find it, by a wrong result, by a
// check that refuses the program or the plan, or by the end of the process: memory that one rank
// reads while another writes it may hold addresses.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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
// In memory that a child shares.
std::atomic<bool>& was_reached = *new (mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<bool>(false);

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

std::string text_of(const std::filesystem::path& path) {
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
    const std::string text = text_of(file);
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
    const Case test = equivalence::parse_case(text_of(entry.path()));
    const equivalence::Verdict verdict = equivalence::run_cases({&test, 1}).front();
    if (verdict.is_bad())
      return fmt::format("{}: {}", entry.path().filename().string(), verdict.text);
  }
  return equivalence::run_seeds(kFirstSeed, kCases, false).failure;
}

// The same in a process of its own.
std::string found_in_a_child() {
  int ends[2];
  if (pipe(ends) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const std::string found = found_by();
    const bool written = write(ends[1], found.data(), found.size()) == static_cast<ssize_t>(found.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string out;
  char room[4096];
  for (ssize_t got = 0; (got = read(ends[0], room, sizeof(room))) > 0;) out.append(room, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return "";
  return WIFSIGNALED(status) ? fmt::format("the process was ended by signal {}", WTERMSIG(status)) : out;
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
  const std::string found = found_in_a_child();
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

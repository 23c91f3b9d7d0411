// Would the tests notice? Each defect of the compiler and the runtime (README.md beside this file) is
// switched on alone, and random cases of tests/equivalence must find it, by a wrong result or by a
// check that refuses the program or the plan.
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
#include <sstream>

#include "tests/defects/seeded_defect.h"
#include "tests/equivalence/run.h"
#include "trireme/base/error.h"

namespace trireme::defects_test {
namespace {

std::string switched_on;
// In memory that a child shares.
template <class T>
std::atomic<T>& shared(T value) {
  void* room = mmap(nullptr, sizeof(std::atomic<T>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *new (room) std::atomic<T>(value);
}
std::atomic<bool>& was_reached = shared(false);
std::atomic<uint32_t>& at_seed = shared(0U);  // the first of the cases that run

}  // namespace

}  // namespace trireme::defects_test

namespace trireme {

bool seeded_defect(std::string_view name) {
  if (name != defects_test::switched_on) return false;
  defects_test::was_reached = true;
  return true;
}

}  // namespace trireme

namespace trireme::defects_test {
namespace {

constexpr uint32_t kFirstSeed = 1;
constexpr uint32_t kCases = 720;  // at most, for each defect

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The defects that the patches put into the sources, in the order of files and lines.
std::vector<std::string> all_defects() {
  std::vector<std::filesystem::path> patches;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TRIREME_SOURCE_DIR "/tests/defects/patches")) {
    if (entry.path().extension() == ".patch") patches.push_back(entry.path());
  }
  std::sort(patches.begin(), patches.end());
  std::vector<std::string> out;
  for (const std::filesystem::path& patch : patches) {
    const std::string text = text_of(patch);
    constexpr std::string_view kCall = "seeded_defect(\"";
    for (size_t at = text.find(kCall); at != std::string::npos; at = text.find(kCall, at)) {
      at += kCall.size();
      std::string name = text.substr(at, text.find('"', at) - at);
      if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(std::move(name));
    }
  }
  return out;
}

constexpr uint32_t kTogether = 48;  // cases of one run

// What a child says of the cases from a seed on, up to the first that is bad: random ones. Those that are kept because
// they once found something do not count, for they would find that again whatever is drawn.
void find_in_child(uint32_t from, int to_parent) {
  std::string found;
  for (uint32_t seed = from; seed < kFirstSeed + kCases && found.empty(); seed += kTogether) {
    at_seed = seed;
    found = equivalence::run_seeds(seed, kTogether, false).failure;
  }
  const bool written = write(to_parent, found.data(), found.size()) == static_cast<ssize_t>(found.size());
  _exit(written ? 0 : 1);
}

struct Child {
  std::string found;
  int signal = 0;    // that ended it
  std::string told;  // to standard error, where a fault on guarded is explained
};

// Reads and closes it.
std::string contents(int file) {
  std::string out;
  char room[4096];
  lseek(file, 0, SEEK_SET);
  for (ssize_t got = 0; (got = read(file, room, sizeof(room))) > 0;) out.append(room, static_cast<size_t>(got));
  close(file);
  return out;
}

Child run_child(uint32_t from) {
  int ends[2];
  require(pipe(ends) == 0, "no pipe");
  const int told = memfd_create("told", MFD_CLOEXEC);
  require(told >= 0, "no file in memory");
  const pid_t child = fork();
  require(child >= 0, "no process");
  if (child == 0) {
    close(ends[0]);
    dup2(told, STDERR_FILENO);
    find_in_child(from, ends[1]);
  }
  close(ends[1]);
  Child out;
  char room[4096];
  for (ssize_t got = 0; (got = read(ends[0], room, sizeof(room))) > 0;)
    out.found.append(room, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  require(waitpid(child, &status, 0) == child, "the child is lost");
  if (WIFSIGNALED(status)) out.signal = WTERMSIG(status);
  out.told = contents(told);
  std::cerr << out.told;
  return out;
}

// A defect may end the process, where bytes that are wrong are taken for addresses or places. That alone finds nothing:
// the cases after those go on in a process of their own, until a result is wrong or a check refuses. A host that
// touches what is the device's ends it too, and is told so.
std::string found_in_children() {
  for (uint32_t from = kFirstSeed; from < kFirstSeed + kCases; from = at_seed + kTogether) {
    const Child child = run_child(from);
    if (child.signal == 0) return child.found;
    const size_t touched = child.told.find("guarded: the host touches device memory");
    if (touched != std::string::npos) return child.told.substr(touched);
    std::cout << fmt::format("signal {} in the cases from seed {} on\n", child.signal, at_seed.load());
  }
  return "";
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
  const std::string found = found_in_children();
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
}  // namespace trireme::defects_test

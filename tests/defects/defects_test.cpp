// Would the tests notice? Each defect of the compiler and the runtime (README.md beside this file) is
// switched on alone, and random cases of tests/equivalence must find it, by a wrong result or by a
// check that refuses the program or the plan.
//
//   defects_test            takes the random case that seeds.txt has for a defect, and searches where that does not
//   find it defects_test --search   searches from the first case on, whatever is recorded defects_test --write writes
//   seeds.txt: a recorded seed that still finds its defect stays
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
#include <map>
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

const std::filesystem::path kSeeds = TRIREME_SOURCE_DIR "/tests/defects/seeds.txt";
constexpr std::string_view kAboutSeeds =
    "# Of each defect the seed of a random case that finds it; see README.md. Written by defects_test --write.\n";
bool searches = false;  // --search

// Lines of a seed and the name of a defect. One that is not among the cases that a search tries counts as none.
std::map<std::string, uint32_t> recorded_seeds() {
  std::map<std::string, uint32_t> out;
  std::ifstream file(kSeeds);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    uint32_t seed = 0;
    std::string name;
    require(words >> seed && std::getline(words >> std::ws, name), "seeds.txt: not a seed and a name: {}", line);
    if (seed >= kFirstSeed && seed < kFirstSeed + kCases) out[name] = seed;
  }
  return out;
}

struct Seeds {
  uint32_t first = kFirstSeed;
  uint32_t end = kFirstSeed + kCases;
};

// What a child says of the cases of these seeds, up to the first that is bad: random ones, each by itself, so that its
// seed alone finds it again. Those that are kept because they once found something do not count, for they would find
// that again whatever is drawn.
void find_in_child(Seeds seeds, int to_parent) {
  std::string found;
  for (uint32_t seed = seeds.first; seed < seeds.end && found.empty(); ++seed) {
    at_seed = seed;
    found = equivalence::run_seeds(seed, 1, false).failure;
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

Child run_child(Seeds seeds) {
  int ends[2];
  require(pipe(ends) == 0, "no pipe");
  const int told = memfd_create("told", MFD_CLOEXEC);
  require(told >= 0, "no file in memory");
  const pid_t child = fork();
  require(child >= 0, "no process");
  if (child == 0) {
    close(ends[0]);
    dup2(told, STDERR_FILENO);
    find_in_child(seeds, ends[1]);
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
// the cases after that go on in a process of their own, until a result is wrong or a check refuses. A host that
// touches what is the device's ends it too, and is told so. The seed that finds it is then `at_seed`.
std::string found_in_children(Seeds seeds) {
  for (; seeds.first < seeds.end; seeds.first = at_seed + 1) {
    const Child child = run_child(seeds);
    if (child.signal == 0) return child.found;
    const size_t touched = child.told.find("guarded: the host touches device memory");
    if (touched != std::string::npos) return child.told.substr(touched);
    std::cout << fmt::format("signal {} in the case of seed {}\n", child.signal, at_seed.load());
  }
  return "";
}

// By its recorded case, or else by a search.
std::string found(const std::string& defect, const std::map<std::string, uint32_t>& recorded) {
  if (const auto seed = recorded.find(defect); seed != recorded.end()) {
    std::string by_seed = found_in_children({seed->second, seed->second + 1});
    if (!by_seed.empty()) return by_seed;
    std::cout << fmt::format("the case of seed {} no longer finds it; defects_test --write finds another\n",
                             seed->second);
  }
  return found_in_children({});
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
  const std::string how = found(GetParam(), searches ? std::map<std::string, uint32_t>() : recorded_seeds());
  EXPECT_TRUE(was_reached) << "no case comes by this defect";
  EXPECT_NE(how, "") << kCases << " cases do not notice it";
  std::cout << how.substr(0, 220) << '\n';
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

TEST(SeededDefects, have_a_recorded_seed_each) {
  const std::map<std::string, uint32_t> seeds = recorded_seeds();
  const std::vector<std::string> defects = all_defects();
  for (const auto& [name, seed] : seeds)
    EXPECT_TRUE(std::ranges::find(defects, name) != defects.end())
        << "no patch has '" << name << "'; defects_test --write";
  for (const std::string& name : defects)
    EXPECT_TRUE(seeds.contains(name)) << "seeds.txt has none for '" << name << "'; defects_test --write";
}

}  // namespace

// Those found so far are written after each, for a search of all takes half an hour.
int write_seeds() {
  const std::map<std::string, uint32_t> old = recorded_seeds();
  std::map<std::string, uint32_t> seeds = old;
  const std::vector<std::string> defects = all_defects();
  std::erase_if(seeds, [&](const auto& each) { return std::ranges::find(defects, each.first) == defects.end(); });
  int unfound = 0;
  for (const std::string& name : defects) {
    switched_on = name;
    if (found(name, old).empty()) {
      std::cout << fmt::format("not found: {}\n", name);
      ++unfound;
      seeds.erase(name);
    } else {
      std::cout << fmt::format("{} {}", at_seed.load(), name) << std::endl;
      seeds[name] = at_seed;
    }
    std::ofstream file(kSeeds);
    file << kAboutSeeds;
    for (const std::string& each : defects) {
      if (seeds.contains(each)) file << fmt::format("{} {}\n", seeds[each], each);
    }
  }
  return unfound == 0 ? 0 : 1;
}

}  // namespace trireme::defects_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--write") return trireme::defects_test::write_seeds();
    trireme::defects_test::searches = trireme::defects_test::searches || arg == "--search";
  }
  return RUN_ALL_TESTS();
}

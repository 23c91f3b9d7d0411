// What each box of the way makes of a small graph or program, as pairs of text files that are meant to be read:
// tests/passes/<box>/<case>.in.txt and .out.txt (boxes.h says what stands in them). `passes_test --write` writes what
// comes out, and goes over the spelling of what goes in; for a new pair write its .in.txt.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/passes/boxes.h"
#include "trireme/base/error.h"

namespace trireme::passes_test {
namespace {

namespace fs = std::filesystem;

bool write_texts = false;

const std::string kFolder = TRIREME_SOURCE_DIR "/tests/passes/";
constexpr std::string_view kIn = ".in.txt";

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// The paths of a box's pairs, without their ends.
std::vector<std::string> pairs_of(const std::string& box) {
  std::vector<std::string> out;
  if (!fs::exists(kFolder + box)) return out;
  for (const auto& entry : fs::directory_iterator(kFolder + box)) {
    const std::string path = entry.path().string();
    if (path.ends_with(kIn)) out.push_back(path.substr(0, path.size() - kIn.size()));
  }
  std::ranges::sort(out);
  return out;
}

class BoxTest : public testing::Test {
 public:
  explicit BoxTest(const boxes::Box& box) : box_(box) {}

  void TestBody() override {
    bool changes = false;
    for (const std::string& pair : pairs_of(box_.name)) {
      SCOPED_TRACE(pair + std::string(kIn));
      const std::string in = read(pair + std::string(kIn));
      boxes::Result result;
      try {
        result = boxes::run(box_, in);
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
        continue;
      }
      changes = changes || !result.in.ends_with(result.out);
      if (write_texts) {
        write(pair + std::string(kIn), result.in);
        write(pair + ".out.txt", result.out);
        continue;
      }
      EXPECT_EQ(in, result.in) << "what goes in is spelled in another way; passes_test --write puts it right";
      EXPECT_EQ(read(pair + ".out.txt"), result.out) << "if that is meant: passes_test --write";
    }
    EXPECT_TRUE(changes) << "no pair of tests/passes/" << box_.name
                         << " shows what it does; write a .in.txt there, and passes_test --write";
  }

 private:
  const boxes::Box& box_;
};

TEST(Pairs, StandInFoldersOfBoxes) {
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(std::ranges::any_of(boxes::all(), [&](const boxes::Box& box) { return box.name == name; }))
        << "tests/passes/" << name << " is the folder of no box";
    for (const auto& file : fs::directory_iterator(entry.path())) {
      std::string path = file.path().string();
      if (!path.ends_with(".out.txt")) continue;
      EXPECT_TRUE(fs::exists(path.replace(path.size() - 8, 8, kIn))) << file.path() << " comes out of nothing";
    }
  }
}

TEST(Pairs, AskOnlyWhatTheBoxKnows) {
  const auto why = [](std::string_view text) -> std::string {
    try {
      boxes::run(boxes::all().back(), text);
    } catch (const Error& e) {
      return e.text();
    }
    return "";
  };
  const std::string program = "mesh \"dp=1\"\ngraph \"g\"\n%0: f32[2] = data \"x\"\noutput \"x\" %0\n";
  EXPECT_EQ(why("# words\n" + program), "");
  EXPECT_EQ(why(program), "no line of '# ' at the head says what the pair shows");
  EXPECT_EQ(why("# words\nloss_peaces = 2\n" + program),
            fmt::format("'loss_peaces' is nothing that {} is asked", boxes::all().back().name));
}

}  // namespace
}  // namespace trireme::passes_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--write") trireme::passes_test::write_texts = true;
  }
  for (const trireme::boxes::Box& box : trireme::boxes::all()) {
    testing::RegisterTest("Box", box.name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [&box]() -> testing::Test* { return new trireme::passes_test::BoxTest(box); });
  }
  return RUN_ALL_TESTS();
}

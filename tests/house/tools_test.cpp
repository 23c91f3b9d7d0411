// The scripts of tools/ that write into the tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace house::tools_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string read_all_of(const fs::path& path) {
  std::stringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

void write_all_to(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// A tree with one source, two of whose lines are alike, and a patch for the second of them.
class RefreshDefects : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "refresh_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    tree_ = name;
    fs::create_directories(tree_ / "tools");
    fs::copy_file(fs::path(TRIREME_SOURCE_DIR) / "tools/refresh_defects", tree_ / "tools/refresh_defects");
    write_all_to(tree_ / "a.cpp", kSource);
    write_all_to(tree_ / "edited", kEdited);
    ASSERT_EQ(run("a.cpp edited"), 0) << printed_;
    patch_ = read_all_of(tree_ / "tests/defects/patches/a.cpp.patch");
    ASSERT_THAT(patch_, HasSubstr("-  return 1;\n+  return 2;"));
  }
  void TearDown() override { fs::remove_all(tree_); }

  int run(const std::string& arguments) {
    const std::string command = "'" + (tree_ / "tools/refresh_defects").string() + "' " + arguments + " 2>&1";
    FILE* const pipe = popen(command.c_str(), "r");
    std::array<char, 4096> part{};
    printed_.clear();
    for (size_t got = 0; (got = fread(part.data(), 1, part.size(), pipe)) > 0;) printed_.append(part.data(), got);
    return pclose(pipe);
  }
  std::string patch() const { return read_all_of(tree_ / "tests/defects/patches/a.cpp.patch"); }

  static constexpr const char* kSource = "int f() {\n  return 1;\n}\n\nint g() {\n  // of g\n  return 1;\n}\n";
  static constexpr const char* kEdited = "int f() {\n  return 1;\n}\n\nint g() {\n  // of g\n  return 2;\n}\n";
  fs::path tree_;
  std::string patch_;
  std::string printed_;
};

TEST_F(RefreshDefects, MovesAPatchWhoseLinesAreAsTheyWere) {
  write_all_to(tree_ / "a.cpp", std::string("// new\n// lines\n") + kSource);

  EXPECT_EQ(run(""), 0) << printed_;

  EXPECT_THAT(patch(), HasSubstr("@@ -7,4 +7,4 @@"));
  EXPECT_THAT(patch(), HasSubstr("-  return 1;\n+  return 2;"));
}

TEST_F(RefreshDefects, WritesNothingByGuess) {
  write_all_to(tree_ / "a.cpp", "int f() {\n  return 1;\n}\n\nint g() {\n  // of no one\n  return 1;\n}\n");

  EXPECT_NE(run(""), 0);

  EXPECT_THAT(printed_,
              HasSubstr("a.cpp.patch: lines beside these defects have changed; their place in a.cpp is a guess"));
  EXPECT_THAT(printed_, HasSubstr("tools/refresh_defects a.cpp build/defects/a.cpp"));
  EXPECT_EQ(patch(), patch_);
}

TEST_F(RefreshDefects, NamesADefectWhoseLinesAreNoMore) {
  write_all_to(tree_ / "a.cpp", "int f() {\n  return 1;\n}\n\nint g() {\n  // of g\n  return 3;\n}\n");

  EXPECT_NE(run(""), 0);

  EXPECT_THAT(printed_, HasSubstr("a.cpp.patch: these lines of a.cpp are no more"));
  EXPECT_EQ(patch(), patch_);
}

}  // namespace
}  // namespace house::tools_test

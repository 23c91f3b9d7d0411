// The commands of the README, the guide and the howtos are run as they stand there, in a folder that looks like the
// repository, and what they print is compared with what is shown. document.h has the comments by which a document says
// how. `docs_test --write` writes what is printed into the documents; numbers that vary stay where everything else
// agrees.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/cli/program.h"
#include "tests/docs/document.h"

namespace docs::docs_test {
namespace {

namespace fs = std::filesystem;

const std::string kSource = TRIREME_SOURCE_DIR;
const std::string kBuild = TRIREME_BUILD_DIR;

std::vector<std::string> tested_documents() {
  std::vector<std::string> out{"README.md"};
  for (const char* folder : {"docs/guide", "docs/howto"}) {
    for (const auto& entry : fs::directory_iterator(kSource + "/" + folder)) {
      out.push_back(fmt::format("{}/{}", folder, entry.path().filename().string()));
    }
  }
  std::ranges::sort(out);
  return out;
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = 0; !what.empty() && (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
}

// A network of this process's own, so that ports which the documents name are free; its other address is the first
// machine's of guide 03. Where that takes rights that this process does not have, it stays where it is.
void enter_own_network() {
  if (::unshare(CLONE_NEWNET) != 0) return;
  const char* const kScript =
      "ip link set lo up && ip link add docs0 type veth peer name docs1 && ip address add 10.0.0.5/24 dev docs0 && "
      "ip link set docs0 up && ip link set docs1 up";
  if (std::system(kScript) != 0) fmt::print("the network of the documents has no address but 127.0.0.1\n");
}

// By programs that have ended.
double worked_s() {
  rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  const auto seconds = [](const timeval& of) {
    return static_cast<double>(of.tv_sec) + 1e-6 * static_cast<double>(of.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

class DocumentTest : public trireme::cli::CliTest {
 public:
  explicit DocumentTest(std::string document)
      : document_(std::move(document)), lines_(lines_of(read(kSource + "/" + document_))) {}

  void TestBody() override {
    make_folder();
    std::vector<Block> blocks;
    try {
      blocks = blocks_of(document_, lines_);
    } catch (const std::runtime_error& e) {
      FAIL() << e.what();
    }
    // From the last to the first, lines that are written change no place of a block that is still to come.
    std::vector<std::pair<Block, Lines>> changes;
    for (const Block& block : blocks) test(block, changes);
    if (changes.empty() || !writes_documents) return;
    for (auto change = changes.rbegin(); change != changes.rend(); ++change) put(change->first, change->second);
    std::ofstream(kSource + "/" + document_, std::ios::binary) << joined(lines_);
  }

 private:
  // A folder that looks like the repository after a build, with `trireme` in the PATH.
  void make_folder() const {
    for (const char* name :
         {"docs", "examples", "machines", "tools", "trireme", "cli", "tests", "README.md", "LICENSE"}) {
      fs::create_symlink(kSource + "/" + name, path(name));
    }
    fs::create_directories(path("build/release"));
    fs::create_directories(path("bin"));
    for (const char* folder : {"examples", "lib", "tests"})
      fs::create_symlink(kBuild + "/" + folder, path(fmt::format("build/release/{}", folder)));
    // Adds to a command line that begins with words of SHORTENED the options beside them.
    const std::string wrapper = fmt::format(
        "#!/bin/sh\nwhile IFS='|' read -r words options; do\n"
        "  case \"$* \" in \"$words \"*) set -- \"$@\" $options ;; esac\n"
        "done <<END\n$SHORTENED\nEND\nexec {} \"$@\"\n",
        TRIREME_PROGRAM);
    for (const char* name : {"bin/trireme", "build/release/trireme"}) {
      write(name, wrapper);
      fs::permissions(path(name), fs::perms::owner_all);
    }
  }

  void test(const Block& block, std::vector<std::pair<Block, Lines>>& changes) {
    SCOPED_TRACE(block.where());
    if (block.verb.empty()) {
      ADD_FAILURE() << block.where() << ": no comment says what is to be tested of this block (tests/docs/document.h)";
    } else if (block.verb == "setup") {
      EXPECT_EQ(shell(block, joined(block.lines)).code, 0) << last_;
    } else if (block.verb == "file") {
      write(block.argument, (block.after.empty() ? "" : read(path(block.after))) + joined(block.lines));
    } else if (block.verb == "part of") {
      expect_part(block);
    } else if (block.verb == "run" && has_program(block.needs)) {
      run(block, changes);
    } else if (block.verb == "printed by") {
      shell(block, block.argument);
      compare(block, block.argument, block.lines, changes, block);
    } else if (block.verb == "table printed by" && has_program(block.needs)) {
      shell(block, block.argument);
      compare_table(block, changes);
    } else if (block.verb == "more of it") {
      compare(block, "the command before", block.lines, changes, block);
    }
  }

  bool has_program(const std::string& name) {
    if (name.empty()) return true;
    const bool is_address = std::isdigit(static_cast<unsigned char>(name[0])) != 0;
    const bool found =
        run_shell(is_address ? "ip -o address | grep -qF ' " + name + "/'" : "command -v " + name).code == 0;
    if (!found) fmt::print("{}: commands that need {} were not run\n", document_, name);
    return found;
  }

  // Anyone may read here that a command failed in the background, where a shell says nothing of it.
  trireme::cli::Outcome shell(const Block& block, const std::string& script) {
    const double before = worked_s();
    std::string shortened;
    for (const auto& [command, options] : block.shortened) shortened += command + "|" + options + "\n";
    trireme::cli::Outcome outcome =
        run_shell("exec 2>&1; set -e\n" + script,
                  {"PATH=" + path("bin") + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "SHORTENED=" + shortened,
                   "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                   "OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_mpi_yield_when_idle=1"});
    last_ = outcome.out;
    if (const double took = worked_s() - before; took >= 1)
      fmt::print("{}: {:.0f} s of the processor\n", block.where(), took);
    const std::string host = trireme::cli::CliTest::read("/proc/sys/kernel/hostname");
    replace_all(last_, host.substr(0, host.find('\n')), "vm");
    return outcome;
  }

  void run(const Block& block, std::vector<std::pair<Block, Lines>>& changes) {
    const bool is_transcript =
        std::ranges::any_of(block.lines, [](const std::string& line) { return line.starts_with("$ "); });
    if (!is_transcript) {
      std::string script;
      for (const std::string& line : block.lines) script += line + (block.at_once ? " & all=\"$all $!\"\n" : "\n");
      if (block.at_once) script += "for one in $all; do wait $one; done\n";
      const trireme::cli::Outcome outcome = shell(block, script);
      EXPECT_EQ(outcome.code, 0) << joined(block.lines) << last_;
      EXPECT_THAT(lines_of(last_), testing::Not(testing::Contains(testing::StartsWith("error: "))))
          << joined(block.lines);
      return;
    }
    for (size_t at = 0; at < block.lines.size();) {
      ASSERT_TRUE(block.lines[at].starts_with("$ ")) << "lines before the first command";
      const std::string command = block.lines[at].substr(2);
      Block output = block;
      output.first += ++at;
      output.lines.clear();
      for (; at < block.lines.size() && !block.lines[at].starts_with("$ "); ++at)
        output.lines.push_back(block.lines[at]);
      output.last = output.first + output.lines.size();
      const int code = shell(block, command).code;
      const bool shows_error =
          std::ranges::any_of(output.lines, [](const std::string& line) { return line.starts_with("error: "); });
      EXPECT_EQ(code != 0, shows_error) << command << " ended with exit code " << code << ":\n" << last_;
      compare(block, command, output.lines, changes, output);
    }
  }

  void compare(const Block& block, const std::string& command, const Lines& shown,
               std::vector<std::pair<Block, Lines>>& changes, const Block& output) {
    const Lines printed = lines_of(last_);
    if (agree(shown, printed, block.numbers_vary, block.some_lines)) return;
    std::vector<int> places;
    const bool has_gaps = block.some_lines || std::ranges::count(shown, "...") > 0;
    if (writes_documents &&
        (agree(shown, printed, true, block.some_lines, &places) || (has_gaps && nearest(shown, printed, places)))) {
      Lines now;
      for (size_t i = 0; i < shown.size(); ++i) {
        now.push_back(places[i] < 0 || shown[i].ends_with("...") ? shown[i] : printed[static_cast<size_t>(places[i])]);
      }
      changes.emplace_back(output, now);
      return;
    }
    if (writes_documents && !has_gaps) {
      changes.emplace_back(output, printed);
      return;
    }
    ADD_FAILURE() << block.where() << ": " << command << "\nprinted:\n"
                  << last_ << "but the document shows:\n"
                  << joined(shown) << "docs_test --write writes into the document what is printed";
  }

  void compare_table(const Block& block, std::vector<std::pair<Block, Lines>>& changes) {
    Lines printed;
    std::ranges::copy_if(lines_of(last_), std::back_inserter(printed),
                         [](const std::string& line) { return line.starts_with("|"); });
    const Lines now = filled_table(block.lines, printed);
    if (now == block.lines) return;
    if (writes_documents && !printed.empty()) {
      changes.emplace_back(block, now);
      return;
    }
    ADD_FAILURE() << block.where() << ": " << block.argument << "\nprinted:\n"
                  << last_ << "but the document shows:\n"
                  << joined(block.lines) << "docs_test --write writes into the document what is printed";
  }

  void put(const Block& output, const Lines& now) {
    const auto begin = lines_.begin() + static_cast<std::ptrdiff_t>(output.first);
    const auto place = lines_.erase(begin, lines_.begin() + static_cast<std::ptrdiff_t>(output.last));
    Lines indented;
    for (const std::string& line : now) indented.push_back(line.empty() ? "" : std::string(output.indent, ' ') + line);
    lines_.insert(place, indented.begin(), indented.end());
  }

  void expect_part(const Block& block) const {
    const Lines file = lines_of(read(kSource + "/" + block.argument));
    const auto found = std::ranges::search(file, block.lines);
    EXPECT_FALSE(found.empty()) << block.where() << ": '" << block.argument
                                << "' has no lines like these, one after the other:\n"
                                << joined(block.lines);
  }

  std::string document_;
  Lines lines_;
  std::string last_;  // that a command printed
};

// "docs/guide/01_first_graph.md" -> "guide_01_first_graph".
std::string name_of(std::string document) {
  if (document.starts_with("docs/")) document = document.substr(5);
  document.resize(document.find('.'));
  std::ranges::replace(document, '/', '_');
  return document;
}

TEST(Blocks, are_found_with_the_comments_before_them) {
  const std::vector<Block> blocks = blocks_of(
      "a.md",
      lines_of("# A\n\n<!-- test: run; numbers vary; shortened: train: --set a=1 -->\n\n    $ x\n    1\n\ntext\n\n"
               "<!-- test: setup\ncp a b\n-->\n\n<!-- test: file b.toml; after a.toml -->\n```toml\nx = 1\n```\n\n- "
               "item\n  more\n\n      y\n"));

  ASSERT_EQ(blocks.size(), 4U);
  EXPECT_EQ(blocks[0].verb, "run");
  EXPECT_TRUE(blocks[0].numbers_vary);
  EXPECT_EQ(blocks[0].shortened, (std::vector<std::pair<std::string, std::string>>{{"train", "--set a=1"}}));
  EXPECT_EQ(blocks[0].where(), "a.md:5");
  EXPECT_EQ(blocks[0].lines, (Lines{"$ x", "1"}));
  EXPECT_EQ(blocks[1].lines, Lines{"cp a b"});
  EXPECT_EQ(blocks[2].verb, "file");
  EXPECT_EQ(blocks[2].after, "a.toml");
  EXPECT_EQ(blocks[3].verb, "") << "without a comment nothing is known of it, which fails the test of its document";
  EXPECT_EQ(blocks[3].indent, 6U);
  EXPECT_THROW(blocks_of("a.md", lines_of("<!-- test: guess -->\n    x\n")), std::runtime_error);
  EXPECT_THROW(blocks_of("a.md", lines_of("<!-- test: not run -->\n\n    x\n")), std::runtime_error);
  EXPECT_THROW(blocks_of("a.md", lines_of("<!-- test: run -->\n\nno block\n")), std::runtime_error);
}

TEST(Blocks, are_tables_where_a_comment_says_so) {
  const std::vector<Block> blocks = blocks_of(
      "a.md",
      lines_of("| a |\n|---|\n\n<!-- test: table printed by x y -->\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\ntext\n"));

  ASSERT_EQ(blocks.size(), 1U) << "a table without a comment is text";
  EXPECT_EQ(blocks[0].verb, "table printed by");
  EXPECT_EQ(blocks[0].argument, "x y");
  EXPECT_EQ(blocks[0].where(), "a.md:6");
  EXPECT_EQ(blocks[0].lines, (Lines{"| a | b |", "|---|---|", "| 1 | 2 |"}));
}

TEST(Tables, keep_cells_that_are_not_printed) {
  EXPECT_EQ(filled_table({"| 1 | 2 |"}, {"| 1 | ... |"}), Lines{"| 1 | 2 |"});
  EXPECT_EQ(filled_table({"| 1 | 2 |"}, {"| 3 | ... |"}), Lines{"| 3 | 2 |"});
  EXPECT_EQ(filled_table({"| 1 | 2 |"}, {"| 1 | ... |", "| 2 | ... |"}), (Lines{"| 1 | ... |", "| 2 | ... |"}));
  EXPECT_EQ(filled_table({"| 1 | 2 |"}, {"| 1 |"}), Lines{"| 1 |"});
}

TEST(Outputs, agree_line_by_line_but_for_what_is_said_to_vary) {
  EXPECT_TRUE(agree({"a 1"}, {"a 1"}, false, false));
  EXPECT_FALSE(agree({"a 1"}, {"a 2"}, false, false));
  EXPECT_TRUE(agree({"a  1.5 ms,"}, {"a 12,345 ms,"}, true, false));
  EXPECT_FALSE(agree({"a 1 ms"}, {"b 1 ms"}, true, false));
  EXPECT_FALSE(agree({"a"}, {"a", "b"}, false, false));
  EXPECT_TRUE(agree({"a", "...", "d"}, {"a", "b", "c", "d"}, false, false));
  EXPECT_FALSE(agree({"a", "...", "d"}, {"a", "b", "c"}, false, false));
  EXPECT_TRUE(agree({"b ..."}, {"a", "b and more", "c"}, false, true));
  EXPECT_FALSE(agree({"c", "a"}, {"a", "b", "c"}, false, true));
  std::vector<int> places;
  ASSERT_TRUE(agree({"a", "...", "d 1"}, {"a", "b", "d 2"}, true, false, &places));
  EXPECT_EQ(places, (std::vector<int>{0, -1, 2}));
  EXPECT_TRUE(nearest({"...", "%1 = add(2)"}, {"%0 = x", "%1 = add(3)"}, places));
  EXPECT_EQ(places, (std::vector<int>{-1, 1}));
  EXPECT_FALSE(nearest({"another"}, {"%0 = x", "%1 = add(3)"}, places));
}

}  // namespace
}  // namespace docs::docs_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    docs::writes_documents = docs::writes_documents || std::string_view(argv[i]) == "--write";
  for (const std::string& document : docs::docs_test::tested_documents()) {
    testing::RegisterTest(
        "Document", docs::docs_test::name_of(document).c_str(), nullptr, nullptr, __FILE__, __LINE__,
        [document]() -> trireme::cli::CliTest* { return new docs::docs_test::DocumentTest(document); });
  }
  if (!testing::GTEST_FLAG(list_tests)) docs::docs_test::enter_own_network();
  return RUN_ALL_TESTS();
}

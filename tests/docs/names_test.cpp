// What documents, help pages and messages name is there: commands, options, keys of a job's file, files.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string_view>
#include <utility>

#include "tests/cli/program.h"
#include "tests/docs/document.h"
#include "trireme/train/job/kinds.h"

namespace docs::names_test {
namespace {

namespace fs = std::filesystem;

const std::string kTree = TRIREME_SOURCE_DIR;

struct File {
  std::string path;
  std::string text;
};

class NamesTest : public trireme::cli::CliTest {
 protected:
  static std::vector<File> files(const std::vector<std::string>& folders, const std::vector<std::string>& endings) {
    std::vector<File> out{{"README.md", read(kTree + "/README.md")},
                          {"CONTRIBUTING.md", read(kTree + "/CONTRIBUTING.md")}};
    if (endings.front() != ".md") out.clear();
    for (const std::string& folder : folders) {
      for (const auto& entry : fs::recursive_directory_iterator(kTree + "/" + folder)) {
        const std::string path = fs::relative(entry.path(), kTree).string();
        if (path.ends_with("_test.cpp") || std::ranges::count(endings, entry.path().extension().string()) == 0)
          continue;
        out.push_back({path, read(entry.path())});
      }
    }
    return out;
  }

  // The options of each command, "launch" or "bench step", as its help lists them.
  const std::map<std::string, std::set<std::string>>& options() {
    if (!options_.empty()) return options_;
    for (const std::string& command : commands_of("")) {
      const std::vector<std::string> parts = commands_of(command);
      for (const std::string& part : parts) options_[command + " " + part] = found(help(command + " " + part), kOption);
      options_[command] = found(help(command), kOption);
    }
    return options_;
  }

  std::string help(const std::string& command) {
    const trireme::cli::Outcome outcome = run_shell(TRIREME_PROGRAM " " + command + " --help");
    EXPECT_EQ(outcome.code, 0) << command << outcome.err;
    return outcome.out;
  }

  std::vector<std::string> commands_of(const std::string& command) {
    std::vector<std::string> out;
    bool listed = false;
    for (const std::string& line : lines_of(help(command))) {
      if (listed && line.starts_with("  ") && line.size() > 2 && line[2] != ' ')
        out.push_back(line.substr(2, line.find(' ', 2) - 2));
      listed = line == "Subcommands:" || (listed && !line.empty());
    }
    return out;
  }

  static std::set<std::string> found(const std::string& text, const std::string& pattern) {
    const std::regex regex(pattern);
    std::set<std::string> out;
    for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
      out.insert(at->str(at->size() - 1));
    return out;
  }

  static constexpr const char* kOption = R"((?:^|[\s,`\[])(--[a-z][a-z0-9-]*)(?![a-z0-9_-]))";

 private:
  std::map<std::string, std::set<std::string>> options_;
};

// Whether a file is there whose path begins so, as in "docs/guide/03".
bool exists(std::string path) {
  while (path.ends_with('.') || path.ends_with('/')) path.pop_back();
  if (fs::exists(kTree + "/" + path)) return true;
  const fs::path whole = kTree + "/" + path;
  if (!fs::is_directory(whole.parent_path())) return false;
  return std::ranges::any_of(fs::directory_iterator(whole.parent_path()), [&](const fs::directory_entry& entry) {
    return entry.path().filename().string().starts_with(whole.filename().string() + "_") ||
           entry.path().filename().string().starts_with(whole.filename().string() + "-");
  });
}

constexpr const char* kPath =
    R"((?:^|[\s`"'(\[])((?:docs|examples|machines|tools|tests|trireme|cli|bench)/[A-Za-z0-9_./-]*[A-Za-z0-9_/]))";

TEST_F(NamesTest, NamesAreFoundInText) {
  EXPECT_EQ(found("`trireme x --one-two 3`, --no_option, `--last`", kOption),
            (std::set<std::string>{"--one-two", "--last"}));
  EXPECT_EQ(found("see docs/guide/03, `examples/a.toml` or a/docs/b", kPath),
            (std::set<std::string>{"docs/guide/03", "examples/a.toml"}));
  EXPECT_TRUE(exists("docs/guide/03"));
  EXPECT_TRUE(exists("machines/"));
  EXPECT_FALSE(exists("examples/mnist.toml"));
  EXPECT_TRUE(options().contains("bench step"));
  EXPECT_TRUE(options().at("launch").contains("--nnodes"));
}

TEST_F(NamesTest, DocumentsGiveCommandsOptionsThatTheyHave) {
  const std::regex command_line(R"((?:^|[`\s/(])trireme ((?:(?:bench|checkpoint) )?[a-z]+)([^`\n]*))");
  for (const File& file : files({"docs"}, {".md"})) {
    for (std::sregex_iterator at(file.text.begin(), file.text.end(), command_line), end; at != end; ++at) {
      const auto command = options().find(at->str(1));
      std::string line = at->str(2);
      if (command == options().end()) {
        EXPECT_TRUE(line.find("--") == std::string::npos || at->str(1) == "bench step")
            << file.path << ": there is no `" << at->str() << "`";
        continue;
      }
      for (const char* stop : {" -- ", " | ", " # ", "; ", " ./", " sh "})
        line.resize(std::min(line.find(stop), line.size()));
      for (const std::string& option : found(line, kOption)) {
        EXPECT_TRUE(command->second.contains(option))
            << file.path << ": `trireme " << at->str(1) << "` has no option " << option;
      }
    }
  }
}

TEST_F(NamesTest, DocumentsNameOptionsThatSomeCommandHas) {
  // Options of other programs that the guide speaks of.
  std::set<std::string> known{"--oversubscribe", "--allow-run-as-root", "--join", "--cases", "--seed", "--replay"};
  for (const auto& [command, names] : options()) known.insert(names.begin(), names.end());
  for (const File& file : files({"docs/guide", "docs/howto"}, {".md"})) {
    for (const std::string& option : found(file.text, R"(`(--[a-z][a-z0-9-]*)(?=[ `=]))")) {
      EXPECT_TRUE(known.contains(option)) << file.path << ": no command has the option " << option;
    }
  }
}

TEST_F(NamesTest, DocumentsNameKeysThatAJobHas) {
  std::set<std::string> keys;
  for (const trireme::KeyHelp& key : trireme::all_keys()) keys.insert(key.name);
  for (const File& file : files({"docs"}, {".md"})) {
    for (
        const std::string& key : found(
            file.text,
            R"((?:`|--set '?)((?!model\.safetensors)(?:model|data|train|parallel)\.[a-z][a-z0-9_]*)(?![a-z0-9_.:(]))")) {
      EXPECT_TRUE(keys.contains(key)) << file.path << ": a job's file has no key " << key;
    }
  }
}

TEST_F(NamesTest, EveryKeyOfAJobSaysWhatItIs) {
  for (const trireme::KeyHelp& key : trireme::all_keys())
    EXPECT_FALSE(key.doc.ends_with(": ") || key.doc.empty()) << key.name;
}

TEST_F(NamesTest, DocumentsHelpAndMessagesNameFilesThatAreThere) {
  std::vector<File> all = files({"docs", "examples", "tests"}, {".md"});
  for (const File& file : files({"cli", "trireme", "examples", "machines"}, {".cpp", ".h", ".toml"}))
    all.push_back(file);
  for (const auto& [command, names] : options()) all.push_back({"trireme " + command + " --help", help(command)});
  for (const char* topic : {"config", "env"})
    all.push_back({std::string("trireme help ") + topic, run_shell(TRIREME_PROGRAM " help " + std::string(topic)).out});
  for (const File& file : all) {
    for (const std::string& name : found(file.text, kPath))
      EXPECT_TRUE(exists(name)) << file.path << ": there is no '" << name << "'";
  }
}

TEST_F(NamesTest, LinksOfDocumentsLeadToFiles) {
  for (const File& file : files({"docs", "examples", "tests"}, {".md"})) {
    for (const std::string& link : found(file.text, R"(\]\(([^)#: ]+)(?=[)#]))")) {
      EXPECT_TRUE(fs::exists((fs::path(kTree) / file.path).parent_path() / link))
          << file.path << ": nothing is at the link " << link;
    }
  }
}

// Options that make examples small, by how these begin: as much of them is read, and less computed.
constexpr std::pair<std::string_view, std::string_view> kShortened[] = {
    {"trireme bench compile", " --layers 2"},
    {"trireme plan examples/gpt_text.toml -n 4 --out", " --set model.layers=1 --set model.width=32 --set data.seq=32"},
    {"trireme plan gpt3-175b", " --set model.layers=2"},
    {"trireme train", " --set train.steps=2"}};

TEST_F(NamesTest, ExamplesOfHelpPagesRun) {
  for (const char* name : {"examples", "machines"}) fs::create_symlink(kTree + "/" + name, path(name));
  write("my_program", "#!/bin/sh\n");
  fs::permissions(path("my_program"), fs::perms::owner_all);
  ASSERT_EQ(
      run_shell(TRIREME_PROGRAM
                " train examples/gpt_text.toml --set train.steps=1 --set train.eval_batches=1 --set model.layers=1 "
                "--set model.width=32")
          .code,
      0);  // what the example of `trireme generate` reads
  int examples = 0;
  std::set<std::string_view> shortened;
  for (const auto& [command, names] : options()) {
    bool below = false;
    for (const std::string& line : lines_of(help(command))) {
      below = below ? line.starts_with("  ") : line == "Example:" || line == "Examples:";
      if (!below || !line.starts_with("  trireme ") || line.find("10.0.0.5") != std::string::npos)
        continue;  // of several machines
      ++examples;
      std::string more;
      for (const auto& [words, less] : kShortened) {
        if (!std::string_view(line).substr(2).starts_with(words)) continue;
        more += less;
        shortened.insert(words);
      }
      const trireme::cli::Outcome outcome = run_shell(TRIREME_PROGRAM + line.substr(9) + more);
      EXPECT_EQ(outcome.code, 0) << line << "\n" << outcome.err;
    }
  }
  EXPECT_GE(examples, 4);
  EXPECT_EQ(shortened.size(), std::size(kShortened));
}

}  // namespace
}  // namespace docs::names_test

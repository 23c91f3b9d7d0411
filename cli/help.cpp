// trireme help: of a command, the environment, or the keys of a configuration.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/joined_text.h"
#include "trireme/train/job/kinds.h"

namespace trireme::cli {
namespace {

void print_environment() {
  for (const Flag& flag : all_flags()) {
    std::printf("%-28s %s\n%-28s   %s\n", std::string(flag.name).c_str(), std::string(flag.form).c_str(), "",
                std::string(flag.doc).c_str());
  }
}

void print_config_keys() {
  std::printf("Keys of a job's TOML file; [section] name = value.\n\n");
  size_t widest = 0;
  const std::vector<KeyHelp> keys = all_keys();
  for (const KeyHelp& key : keys) widest = std::max(widest, key.name.size());
  for (const KeyHelp& key : keys)
    std::printf("  %-*s  %s%s\n", static_cast<int>(widest), key.name.c_str(), key.doc.c_str(),
                key.row.flag.empty() ? "" : fmt::format(" ({})", key.row.flag).c_str());
  std::printf("\nThe defaults:\n\n%s", to_toml(JobConfig{}).c_str());
  std::printf("\nThose of each kind of model and of data:\n%s", defaults_of_kinds().c_str());
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// `words` are a command's name, and that of one of its own if it has some.
int print_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  std::string called = "trireme";
  std::vector<std::string> topics{"env", "config"};
  for (const std::string& word : words) {
    const auto commands = commands_of(*command);
    const auto found = std::ranges::find(commands, word, [](const CLI::App* each) { return each->get_name(); });
    if (found == commands.end()) {
      for (const CLI::App* each : commands) topics.push_back(each->get_name());
      fail(ErrorKind::kNotFound, "help: no topic '{}'.{}", joined_text(words, " "), suggestion(word, topics));
    }
    if (command != &app) called += " " + command->get_name();
    command = *found;
    topics.clear();
  }
  std::fputs(command->help(called).c_str(), stdout);
  return 0;
}

int run(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) {
    // app.help() would be that of the command that was given, `help`.
    std::fputs(app.get_formatter()->make_help(&app, "trireme", CLI::AppFormatMode::Normal).c_str(), stdout);
    return 0;
  }
  const bool is_alone = words.size() == 1;
  if (is_alone && words[0] == "env") {
    print_environment();
  } else if (is_alone && words[0] == "config") {
    print_config_keys();
  } else {
    return print_command(app, words);
  }
  return 0;
}

}  // namespace

void add_help(CLI::App& app, Action& chosen) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("help", "Help on a command, on 'config' or on 'env'");
  command->add_option("topic", *words,
                      "A command, as 'train' or 'bench step', 'config' (keys of a job's file) or 'env' (environment "
                      "variables)");
  command->callback([=, &app, &chosen] { chosen = [=, &app] { return run(app, *words); }; });
}

}  // namespace trireme::cli

// trireme help: of a command, the environment, or the keys of a configuration.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
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

int run(const CLI::App& app, const std::string& topic) {
  if (topic.empty()) {
    // app.help() would be that of the command that was given, `help`.
    std::fputs(app.get_formatter()->make_help(&app, "trireme", CLI::AppFormatMode::Normal).c_str(), stdout);
    return 0;
  }
  if (topic == "env") {
    print_environment();
    return 0;
  }
  if (topic == "config") {
    print_config_keys();
    return 0;
  }
  std::vector<std::string> topics{"env", "config"};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == topic) {
      std::fputs(command->help("trireme").c_str(), stdout);
      return 0;
    }
    topics.push_back(command->get_name());
  }
  fail(ErrorKind::kNotFound, "help: no topic '{}'.{}", topic, suggestion(topic, topics));
}

}  // namespace

void add_help(CLI::App& app, Action& chosen) {
  auto topic = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Help on a command, on 'config' or on 'env'");
  command->add_option("topic", *topic, "A command, 'config' (keys of a job's file) or 'env' (environment variables)");
  command->callback([=, &app, &chosen] { chosen = [=, &app] { return run(app, *topic); }; });
}

}  // namespace trireme::cli

// trireme launch: starts any program as the ranks of a job on this host.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "trireme/base/error.h"
#include "trireme/launch/supervise.h"

namespace trireme::cli {

void add_launch(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<launch::LaunchOptions>();
  CLI::App* command = app.add_subcommand("launch", "Start a program as several ranks on this host");
  command->add_option("-n,--ranks", options->ranks, "Ranks to start")->required();
  command->add_option("--threads", options->threads, "Compute threads of each rank; 0: cores over ranks");
  command->add_option("--log-dir", options->log_dir, "Folder of worker_<rank>.log, for the ranks other than 0");
  command->add_flag("--bind-core", options->pin, "Give each rank cores of its own");
  command->add_option("program", options->command, "The program and its arguments")->required();
  command->prefix_command();
  command->positionals_at_end();
  command->footer("Example:\n  trireme launch -n 2 ./my_program --its-own-option");
  command->callback([=, &chosen] {
    for (const std::string& word : command->remaining()) options->command.push_back(word);
    chosen = [=] {
      require(options->ranks >= 1, "launch: -n {}; it must be 1 or more", options->ranks);
      return tell(launch::supervise(*options));
    };
  });
}

}  // namespace trireme::cli

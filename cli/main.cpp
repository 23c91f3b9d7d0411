#include <CLI/CLI.hpp>

#include <cstdio>

#include "cli/commands.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/version.h"
#include "trireme/launch/rank_info.h"

namespace trireme::cli {
namespace {

std::string version_text() {
  const BuildInfo& build = build_info();
  return fmt::format("trireme {} ({}), {}, {}", kVersion, build.commit, build.compiler, build.options);
}

// The words after which CLI11 gave up, with the likely ones meant.
std::string unknown_words(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> candidates;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    candidates.push_back(command->get_name());
  }
  const CLI::App* where = &app;
  if (!app.get_subcommands().empty()) where = app.get_subcommands().front();
  if (!where->get_subcommands().empty()) where = where->get_subcommands().front();
  if (words.front().starts_with('-')) {
    candidates.clear();
    for (const CLI::Option* option : where->get_options()) {
      for (const std::string& name : option->get_lnames()) candidates.push_back("--" + name);
    }
  }
  const std::string near = closest(words.front(), candidates);
  return fmt::format("{}: no {} '{}'.{} `trireme help` lists the commands.", where->get_name(),
                     words.front().starts_with('-') ? "option" : "command or argument", words.front(),
                     near.empty() ? "" : fmt::format(" Did you mean '{}'?", near));
}

void report(const Error& error) {
  if (!launch::report_failure(error)) std::fprintf(stderr, "error: %s\n", error.what());
}

int run(int argc, char** argv) {
  CLI::App app("Trains a model written for one device on many.", "trireme");
  app.set_version_flag("--version,-V", version_text());
  app.allow_extras();
  app.require_subcommand(0, 1);
  Action chosen;
  add_train(app, chosen);
  add_generate(app, chosen);
  add_explain(app, chosen);
  add_launch(app, chosen);
  add_bench(app, chosen);
  add_help(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help and --version
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "error: %s. `trireme --help` says what is possible.\n", e.what());
    return exit_code(ErrorKind::kInvalidArgument);
  }
  if (const std::vector<std::string> extra = app.remaining(true); !extra.empty()) {
    fail(ErrorKind::kInvalidArgument, "{}", unknown_words(app, extra));
  }
  for (const std::string& name : unknown_flags()) {
    TRIREME_LOG(kWarn, "cli", "the environment has '{}', which means nothing here; `trireme help env` lists what does", name);
  }
  if (!chosen) {
    std::fputs(app.help().c_str(), stdout);
    return argc > 1 ? exit_code(ErrorKind::kInvalidArgument) : 0;
  }
  return chosen();
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) {
  try {
    return trireme::cli::run(argc, argv);
  } catch (const trireme::Error& e) {
    trireme::cli::report(e);
    return trireme::exit_code(e.kind());
  } catch (const std::exception& e) {
    trireme::cli::report(trireme::Error(trireme::ErrorKind::kInternal, e.what()));
    return trireme::exit_code(trireme::ErrorKind::kInternal);
  }
}

// The program `trireme`: its commands, its help, and the exit code of an error.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <string_view>

#include "cli/commands.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/comm/transports/hangup.h"
#include "trireme/launch/rank/rank_info.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/ways/way_rule.h"
#include "trireme/version.h"

namespace trireme::cli {
namespace {

std::string version_text() {
  const BuildInfo& build = build_info();
  return fmt::format("trireme {} ({}), {}, {}", kVersion, build.commit, build.compiler, build.options);
}

// Where the right way to say it stands.
std::string where_to_read(const CLI::App& app) {
  if (app.get_subcommands().empty()) return "`trireme help` lists the commands.";
  const CLI::App* command = app.get_subcommands().front();
  if (command->get_subcommands().empty()) return fmt::format("See `trireme help {}`.", command->get_name());
  return fmt::format("See `trireme {} {} --help`.", command->get_name(),
                     command->get_subcommands().front()->get_name());
}

const CLI::App* innermost(const CLI::App& app) {
  const CLI::App* out = &app;
  while (!out->get_subcommands().empty()) out = out->get_subcommands().front();
  return out;
}

std::string kind_of_value(const CLI::App& app, const std::string& option) {
  const CLI::Option* found = innermost(app)->get_option_no_throw(option);
  const std::string type = found == nullptr ? "" : found->get_type_name();
  if (type.starts_with("INT") || type.starts_with("UINT")) return "a whole number";
  return type.starts_with("FLOAT") ? "a number" : "a value of the right kind";
}

// What the first of the words that CLI11 could not place was meant to be, or "".
std::string nearest(const CLI::App& app, const std::string& word) {
  std::vector<std::string> candidates;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    candidates.push_back(command->get_name());
  }
  const CLI::App* where = innermost(app);
  if (where != &app) {
    candidates.clear();
    for (const CLI::App* command : where->get_subcommands([](const CLI::App*) { return true; })) {
      candidates.push_back(command->get_name());
    }
  }
  if (word.starts_with('-')) {
    candidates.clear();
    for (const CLI::Option* option : where->get_options()) {
      for (const std::string& name : option->get_lnames()) candidates.push_back("--" + name);
    }
  }
  return closest(word, candidates);
}

// For a command that takes keys of a job, but not this flag of one: how the key is said, or, where the command finds
// its value, how that is limited. "" otherwise.
std::string as_key(const CLI::App& app, const std::string& word) {
  if (app.get_subcommands().empty()) return "";
  const CLI::App* command = app.get_subcommands().front();
  if (command->get_option_no_throw("--set") == nullptr) return "";
  const std::string flag = word.substr(0, word.find('='));
  for (const KeyHelp& key : all_keys()) {
    const std::vector<std::string> names = CLI::detail::split(std::string(key.row.flag), ',');
    if (std::ranges::find(names, flag) == names.end()) continue;
    const std::string term = key.name.substr(key.name.find('.') + 1);
    const bool is_found = command->get_option_no_throw("--only") != nullptr &&
                          std::ranges::find(way_terms(), term, &WayTerm::name) != way_terms().end();
    return is_found ? fmt::format(" It is planned; --only \"{}=VALUE\" plans these ways alone.", term)
                    : fmt::format(" It is the key {0}: --set {0}=VALUE.", key.name);
  }
  return "";
}

std::string unknown_word(const CLI::App& app, const std::string& word) {
  const std::string key = as_key(app, word);
  const std::string near = key.empty() ? nearest(app, word) : "";
  const std::string where = app.get_subcommands().empty() ? "trireme" : app.get_subcommands().front()->get_name();
  return fmt::format("{}: no {} '{}'.{}{} {}", where, word.starts_with('-') ? "option" : "command or argument", word,
                     key, near.empty() ? "" : fmt::format(" Did you mean '{}'?", near), where_to_read(app));
}

// What CLI11 found wrong, in the words of this program.
std::string wrong_usage(const CLI::App& app, const CLI::ParseError& error) {
  // An option that is missing may be there misspelt.
  if (const std::vector<std::string> extra = app.remaining(true);
      !extra.empty() && !(nearest(app, extra[0]) + as_key(app, extra[0])).empty()) {
    return unknown_word(app, extra[0]);
  }
  std::string text = error.what();
  if (text.starts_with(": ")) text.erase(0, 2);  // after a name that help hides
  const std::vector<CLI::App*> commands = app.get_subcommands();
  if (error.get_name() == "ConversionError") {
    const size_t equals = text.find(" = ");
    const size_t colon = text.find(": ");
    if (colon != std::string::npos && equals != std::string::npos) {
      const std::string name = text.substr(colon + 2, equals - colon - 2);
      text = fmt::format("{}: '{}' is not {}", name, text.substr(equals + 3), kind_of_value(app, name));
    }
  }
  // "--dtype: fp16 not in {f32,bf16}"
  if (const size_t value = text.find(": "), list = text.find(" not in {"); list < text.size() && value < list) {
    const std::string word = text.substr(value + 2, list - value - 2);
    const std::vector<std::string> words = CLI::detail::split(text.substr(list + 9, text.size() - list - 10), ',');
    text = fmt::format("{}: '{}'; it must be {}", text.substr(0, value), word, quoted_list(words));
    if (const std::string near = closest(word, words); !near.empty())
      text += fmt::format(" (did you mean '{}'?)", near);
  }
  if (error.get_name() == "RequiredError" && !commands.empty()) {
    const CLI::Option* option = innermost(app)->get_option_no_throw(text.substr(0, text.find(' ')));
    if (option != nullptr) text += ": " + option->get_description();
  }
  if (text == "A subcommand is required") {
    std::vector<std::string> names;
    for (const CLI::App* one : commands.back()->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(one->get_name());
    }
    const std::vector<std::string> extra = app.remaining(true);
    text = extra.empty() ? fmt::format("say what: {}", quoted_list(names))
                         : fmt::format("there is no '{}'; it must be {}", extra[0], quoted_list(names));
  }
  const std::string where = commands.empty() ? "trireme" : commands.front()->get_name();
  return fmt::format("{}: {}. {}", where, text, where_to_read(app));
}

// A rank whose launcher has its error ends at once, as others wait for its end.
int report(const Error& error) {
  const int code = exit_code(error.kind());
  if (launch::report_failure(error)) {
    std::fflush(nullptr);
    ::_exit(code);
  }
  std::fprintf(stderr, "error: %s\n", error.what());
  return code;
}

// As scripts expect that add to a command line: of an option given twice the last counts. Lists collect.
void let_the_last_win(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const bool single = option->get_items_expected_max() <= 1;
    if (single && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) let_the_last_win(*command);
}

// CLI11 takes the nearest number for one that 64 bits do not hold, 010 for 8, and -1 for the largest without a sign. ""
// also for what is no number, which it refuses itself.
std::string why_another_number(const std::string& text, bool is_signed) {
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const std::string_view digits = std::string_view(text).substr(sign);
  if (digits.empty() || digits[0] < '0' || digits[0] > '9') return "";
  if (digits.size() > 1 && digits[0] == '0')
    return fmt::format("'{}' begins with 0; write it in decimal, without", text);
  if (!is_signed && text[0] == '-') return fmt::format("{}; it must be 0 or more", text);
  errno = 0;
  if (is_signed) {
    std::strtoll(text.c_str(), nullptr, 10);
  } else {
    std::strtoull(text.c_str(), nullptr, 10);
  }
  if (errno != ERANGE) return "";
  if (text[0] == '-') return fmt::format("{}; it must be {} or more", text, std::numeric_limits<int64_t>::min());
  const uint64_t most = is_signed ? std::numeric_limits<int64_t>::max() : std::numeric_limits<uint64_t>::max();
  return fmt::format("{}; it must be at most {}", text, most);
}

void refuse_other_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool is_signed = type.starts_with("INT");
    if (!is_signed && !type.starts_with("UINT")) continue;
    const auto why = [option, is_signed](const std::string& text) {
      const std::string wrong = why_another_number(text, is_signed);
      const bool is_named = wrong.empty() || !option->get_group().empty();  // CLI11 leaves out names that help hides
      return is_named ? wrong : fmt::format("--{}: {}", option->get_lnames().front(), wrong);
    };
    option->check(CLI::Validator([why](std::string& text) { return why(text); }, ""));
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) refuse_other_numbers(*command);
}

// CLI11 writes what an option takes as "INT:INT in [0 - 1024]" and "INT:NONNEGATIVE": a type, and a check's own name.
class Help : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string out = CLI::Formatter::make_option_opts(option);
    for (const char* type : {"INT", "UINT", "FLOAT"}) {
      replace(out, fmt::format(" {0}:{0} in [", type), fmt::format(" {} in [", type));
      replace(out, fmt::format(" {}:NONNEGATIVE", type), fmt::format(" {}", type));
    }
    return out;
  }

 private:
  static void replace(std::string& text, const std::string& old, const std::string& by) {
    if (const size_t at = text.find(old); at != std::string::npos) text.replace(at, old.size(), by);
  }
};

struct Command {
  std::string_view name;
  void (*add)(CLI::App& app, Action& chosen);
};
constexpr Command kCommands[] = {{"train", add_train},       {"evaluate", add_evaluate},
                                 {"generate", add_generate}, {"checkpoint", add_checkpoint},
                                 {"explain", add_explain},   {"plan", add_plan},
                                 {"simulate", add_simulate}, {"calibrate", add_calibrate},
                                 {"models", add_models},     {"timetable", add_timetable},
                                 {"launch", add_launch},     {"scheduler", add_scheduler},
                                 {"bench", add_bench},       {"help", add_help}};

// A command's options are those of all keys of a job: where its name comes first, those of others are not made.
void add_commands(CLI::App& app, std::string_view first_word, Action& chosen) {
  const auto named = std::ranges::find(kCommands, first_word, &Command::name);
  if (named != std::end(kCommands) && first_word != "help") return named->add(app, chosen);
  for (const Command& command : kCommands) command.add(app, chosen);
}

int run(int argc, char** argv) {
  CLI::App app("Trains on many devices a model written for one.", "trireme");
  app.formatter(std::make_shared<Help>());  // before commands are added, which take it over
  app.set_version_flag("--version,-V", version_text());
  app.footer(
      "Begin with:\n  trireme train examples/digits.toml\n\n`trireme help COMMAND` has a command's options, `trireme "
      "help config` the keys of a "
      "job's file; docs/guide has lessons, docs/howto answers.");
  app.allow_extras();
  app.require_subcommand(0, 1);
  Action chosen;
  add_commands(app, argc > 1 ? argv[1] : "", chosen);
  let_the_last_win(app);
  refuse_other_numbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help and --version
  } catch (const CLI::ParseError& e) {
    fail(ErrorKind::kInvalidArgument, "{}", wrong_usage(app, e));
  }
  std::vector<std::string> extra = app.remaining(true);
  std::erase(extra, "--");  // before a program's own words
  if (!extra.empty()) {
    fail(ErrorKind::kInvalidArgument, "{}", unknown_word(app, extra[0]));
  }
  for (const std::string& name : unknown_flags()) {
    TRIREME_LOG(
        kWarn, "cli",
        "the environment has '{}', which Trireme does not know; `trireme help env` lists the variables it reads", name);
  }
  if (!chosen) {
    std::fputs(app.help().c_str(), stdout);
    return argc > 1 ? exit_code(ErrorKind::kInvalidArgument) : 0;
  }
  return chosen();
}

// Results that did not arrive are no results: a full disk, say, where the output goes.
int with_output_written(int code) {
  std::cout.flush();
  errno = 0;
  const bool arrived = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (!arrived && code == 0) {
    fail(ErrorKind::kIo, "cannot write to the standard output{}; the output is not complete",
         errno == 0 ? "" : fmt::format(" ({})", std::strerror(errno)));
  }
  return code;
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // beyond `ulimit -f` a write is an error then, which says what was written
  try {
    trireme::comm::take_hangup_from_ucx();
    return trireme::cli::with_output_written(trireme::cli::run(argc, argv));
  } catch (const trireme::Error& e) {
    return trireme::cli::report(e);
  } catch (const std::exception& e) {
    return trireme::cli::report(trireme::Error(trireme::ErrorKind::kInternal, e.what()));
  }
}

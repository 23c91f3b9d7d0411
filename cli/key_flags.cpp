#include "cli/key_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/train/job/kinds.h"

namespace trireme::cli {
namespace {

std::string text_of(int64_t value) {
  return std::to_string(value);
}
std::string text_of(double value) {
  return fmt::format("{}", value);
}
std::string text_of(const std::string& value) {
  return value;
}

std::string toml_text(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// "Ranks that positions are cut over (parallel.cp)"; names of values and of models stay as they are written.
std::string help_of(const KeyHelp& key) {
  std::string out = key.doc;
  const size_t space = std::min(out.find(' '), out.size());
  const bool is_list =
      space == 0 || out[space - 1] == ',' || out[space - 1] == ':' || out.substr(space).starts_with(" or ");
  if (!is_list) out[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(out[0])));
  return fmt::format("{} ({})", out, key.name);
}

// Spaces and quotes of TOML apart.
std::string bare(std::string_view value) {
  std::string out(value);
  std::erase_if(out, [](char c) { return c == ' ' || c == '"' || c == '\''; });
  return out;
}
std::optional<double> as_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? std::nullopt : std::optional(value);
}
bool is_same_value(std::string_view a, std::string_view b) {
  const std::optional<double> of_a = as_number(bare(a)), of_b = as_number(bare(b));
  return of_a && of_b ? *of_a == *of_b : bare(a) == bare(b);
}

struct KeyAndValue {
  std::string_view key, value;
};
KeyAndValue split(std::string_view text) {
  const size_t equals = std::min(text.find('='), text.size());
  return {text.substr(0, equals), text.substr(std::min(equals + 1, text.size()))};
}

// train.steps and train.epochs at other values than 0.
bool says_length(const KeyAndValue& item) {
  return (item.key == "train.steps" || item.key == "train.epochs") && !is_same_value(item.value, "0");
}

}  // namespace

CLI::Option* KeyFlags::add(CLI::App& command, const std::string& names, const std::string& key, const KeyTarget& type,
                           const std::string& help) {
  const auto add_one = [&](auto value) {
    using T = decltype(value);
    return command.add_option_function<T>(
        names, [given = given_, key](const T& found) { given->emplace_back(key, text_of(found)); }, help);
  };
  const auto add_as = [&](const auto& target) -> CLI::Option* {
    using T = std::remove_pointer_t<std::remove_cvref_t<decltype(target)>>;
    if constexpr (std::is_same_v<T, bool>) {
      const auto set = [given = given_, key](int64_t count) { given->emplace_back(key, count > 0 ? "true" : "false"); };
      return command.add_flag_function(names, set, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) {
      return add_one(int64_t{});
    } else if constexpr (std::is_same_v<T, double>) {
      return add_one(double{});
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      const auto set = [given = given_, key](const std::vector<int64_t>& values) {
        given->emplace_back(key, fmt::format("[{}]", joined_text(values, ", ")));
      };
      return command.add_option_function<std::vector<int64_t>>(names, set, help)
          ->delimiter(',')
          ->allow_extra_args(false);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      const auto set = [given = given_, key](const std::vector<std::string>& values) {
        std::vector<std::string> quoted;
        for (const std::string& value : values) quoted.push_back(toml_text(value));
        given->emplace_back(key, fmt::format("[{}]", joined_text(quoted, ", ")));
      };
      return command.add_option_function<std::vector<std::string>>(names, set, help)
          ->delimiter(',')
          ->allow_extra_args(false);
    } else {
      return add_one(std::string());
    }
  };
  return std::visit(add_as, type);
}

void KeyFlags::add_switch(CLI::App& command, const std::string& name, const std::string& key, const std::string& value,
                          const std::string& help) {
  command.add_flag_callback(
      name, [given = given_, key, value] { given->emplace_back(key, value); }, help);
}

std::vector<std::string> KeyFlags::overrides() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : *given_) {
    const std::string& last = *given(key);
    require(value == last, "two flags give {}: '{}' and '{}'; leave one of them out", key, value, last);
    out.push_back(key + "=" + value);
  }
  return out;
}

const std::string* KeyFlags::given(const std::string& key) const {
  const std::string* found = nullptr;
  for (const auto& [name, value] : *given_) {
    if (name == key) found = &value;
  }
  return found;
}

std::string flag_names(const std::string& flag, const KeyTarget& type) {
  std::string out = flag;
  std::ranges::replace(out, '_', '-');
  return std::holds_alternative<bool*>(type) ? fmt::format("{0},!--no-{1}", out, out.substr(2)) : out;
}

std::vector<KeyHelp> each_once(std::vector<KeyHelp> keys) {
  std::vector<KeyHelp> out;
  for (KeyHelp& key : keys) {
    if (!out.empty() && out.back().name == key.name) {
      out.back().doc += "; " + key.doc;
    } else {
      out.push_back(std::move(key));
    }
  }
  return out;
}

void add_set(CLI::App& command, std::vector<std::string>& set, const std::string& help) {
  command.add_option("--set", set, help)->allow_extra_args(false)->transform(plain_override);
}

void refuse_contradictions(const std::vector<std::string>& of_flags, const std::vector<std::string>& set) {
  const auto refuse_length = [](const KeyAndValue& a, const KeyAndValue& b) {
    require(!says_length(a) || !says_length(b) || a.key == b.key,
            "the command line gives {} = {} and {} = {}, which both say how long the job trains; leave one out", a.key,
            a.value, b.key, b.value);
  };
  for (size_t i = 0; i < of_flags.size(); ++i) {
    const KeyAndValue flag = split(of_flags[i]);
    for (size_t other = 0; other < i; ++other) refuse_length(split(of_flags[other]), flag);
    for (const std::string& text : set) {
      const KeyAndValue asked = split(text);
      require(flag.key != asked.key || is_same_value(flag.value, asked.value),
              "the command line gives {0} twice: as a flag with {1}, and --set {0}={2}; leave one out", flag.key,
              flag.value, asked.value);
      refuse_length(flag, asked);
    }
  }
}

void ask_implied(const KeyFlags& flags, JobConfig& config, const std::vector<std::string>& set) {
  for (const KeyHelp& key : all_keys()) {
    const std::string* value = flags.given(key.name);
    if (key.row.implies.empty() || value == nullptr || *value == key.usual) continue;
    const std::string implied = key.name.substr(0, key.name.find('.') + 1) + std::string(key.row.implies);
    const std::string other = implied.substr(0, implied.find('='));
    const bool is_said = flags.given(other) != nullptr || std::ranges::any_of(set, [&](const std::string& each) {
                           return each.starts_with(other + "=");
                         });
    if (!is_said) set_where_usual(config, implied);
  }
}

void add_flags_of_keys(CLI::App& command, KeyFlags& flags, FlagsOf which) {
  for (const KeyHelp& key : each_once(all_keys())) {
    if (key.row.flag.empty() || (which == FlagsOf::kBench && !key.row.in_bench)) continue;
    flags.add(command, flag_names(std::string(key.row.flag), key.row.target), key.name, key.row.target, help_of(key));
  }
}

}  // namespace trireme::cli

#include "cli/key_flags.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

namespace trireme::cli {

CLI::Option* KeyFlags::add_text(CLI::App& command, const std::string& names, const std::string& key,
                                const std::string& help) {
  return command.add_option_function<std::string>(
      names, [given = given_, key](const std::string& value) { given->emplace_back(key, value); }, help);
}

CLI::Option* KeyFlags::add_whole(CLI::App& command, const std::string& names, const std::string& key,
                                 const std::string& help) {
  return command.add_option_function<int64_t>(
      names, [given = given_, key](const int64_t& value) { given->emplace_back(key, std::to_string(value)); }, help);
}

CLI::Option* KeyFlags::add_real(CLI::App& command, const std::string& names, const std::string& key,
                                const std::string& help) {
  return command.add_option_function<double>(
      names, [given = given_, key](const double& value) { given->emplace_back(key, fmt::format("{}", value)); }, help);
}

CLI::Option* KeyFlags::add_list(CLI::App& command, const std::string& names, const std::string& key,
                                const std::string& help) {
  return command
      .add_option_function<std::vector<int64_t>>(
          names,
          [given = given_, key](const std::vector<int64_t>& values) {
            given->emplace_back(key, fmt::format("[{}]", fmt::join(values, ", ")));
          },
          help)
      ->delimiter(',')
      ->allow_extra_args(false);
}

CLI::Option* KeyFlags::add_switch(CLI::App& command, const std::string& names, const std::string& key,
                                  const std::string& help) {
  return command
      .add_flag_function(
          names, [given = given_, key](int64_t count) { given->emplace_back(key, count > 0 ? "true" : "false"); }, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

std::vector<std::string> KeyFlags::overrides() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : *given_) out.push_back(key + "=" + value);
  return out;
}

const std::string* KeyFlags::given(const std::string& key) const {
  const std::string* found = nullptr;
  for (const auto& [name, value] : *given_) {
    if (name == key) found = &value;
  }
  return found;
}

}  // namespace trireme::cli

// Flags that are keys of the configuration under a shorter name. A flag that is given overrides its key with any value,
// also with the default. Of a flag given twice the last counts (cli/main.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trireme::cli {

class KeyFlags {
 public:
  CLI::Option* add_text(CLI::App& command, const std::string& names, const std::string& key, const std::string& help);
  CLI::Option* add_whole(CLI::App& command, const std::string& names, const std::string& key, const std::string& help);
  CLI::Option* add_real(CLI::App& command, const std::string& names, const std::string& key, const std::string& help);
  CLI::Option* add_list(CLI::App& command, const std::string& names, const std::string& key,
                        const std::string& help);  // of whole numbers
  // With a name like "--sp,!--no-sp".
  CLI::Option* add_switch(CLI::App& command, const std::string& names, const std::string& key, const std::string& help);

  // What was given, as "key=value" in the order it was given.
  std::vector<std::string> overrides() const;
  // The value given for the key; null: none was.
  const std::string* given(const std::string& key) const;

 private:
  using Given = std::vector<std::pair<std::string, std::string>>;
  std::shared_ptr<Given> given_ = std::make_shared<Given>();  // filled as the command line is read, shared by copies
};

}  // namespace trireme::cli

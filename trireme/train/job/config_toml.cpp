// A job's file read into its struct, and written (config.h): text becomes typed values here and nowhere below.
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/toml_text.h"
#include "trireme/base/utf8.h"
#include "trireme/base/words.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/kinds.h"

namespace trireme {
namespace {

std::string_view type_name(const ConfigKey& key) {
  static constexpr std::string_view kNames[] = {"true or false",
                                                "a whole number",
                                                "a number",
                                                "a string",
                                                "a list of strings, like [\"a\", \"b\"]",
                                                "a list of whole numbers, like [1, 2]",
                                                "a whole number",
                                                "a string",
                                                "a list of strings, like [\"a\", \"b\"]"};
  return kNames[key.target.index()];
}

[[noreturn]] void wrong_type(const ConfigKey& key, const std::string& where, std::string_view found) {
  fail(ErrorKind::kInvalidArgument, "{}: '{}' must be {}; found {}", where, key.name, type_name(key), found);
}

std::string where_of(const toml::node& node, const std::string& source) {
  return fmt::format("{}:{}", source, node.source().begin.line);
}

std::string describe(const toml::node& node) {
  std::string out;
  node.visit([&](const auto& n) {
    if constexpr (toml::is_string<decltype(n)>) {
      out = fmt::format("the string '{}'", n.get());
    } else if constexpr (toml::is_integer<decltype(n)>) {
      out = fmt::format("{}", n.get());
    } else if constexpr (toml::is_floating_point<decltype(n)>) {
      out = fmt::format("{}", n.get());
    } else if constexpr (toml::is_boolean<decltype(n)>) {
      out = n.get() ? "true" : "false";
    } else if constexpr (toml::is_array<decltype(n)>) {
      out = "a list";
    } else if constexpr (toml::is_table<decltype(n)>) {
      out = "a table";
    } else {
      out = "a date or time";
    }
  });
  return out;
}

template <class T>
std::vector<T> read_list(const toml::node& node, const ConfigKey& key, const std::string& where) {
  const toml::array* array = node.as_array();
  if (array == nullptr) wrong_type(key, where, describe(node));
  std::vector<T> out;
  for (const toml::node& item : *array) {
    const auto value = item.value_exact<T>();
    if (!value) wrong_type(key, where, fmt::format("a list with {}", describe(item)));
    out.push_back(*value);
  }
  return out;
}

void assign(const ConfigKey& key, const toml::node& node, const std::string& source) {
  const std::string where = where_of(node, source);
  if (const auto* text = std::get_if<TextOf>(&key.target)) {
    const bool is_switch = text->was_switch && node.is_boolean();
    const auto value = is_switch ? std::optional<std::string>(describe(node)) : node.value_exact<std::string>();
    if (!value) wrong_type(key, where, describe(node));
    text->set(key.name, *value);
    return;
  }
  std::visit(
      [&](const auto& target) {
        using T = std::remove_pointer_t<std::remove_cvref_t<decltype(target)>>;
        if constexpr (std::is_same_v<T, TextOf>) {
          return;  // read above
        } else if constexpr (std::is_same_v<T, std::shared_ptr<const TextsOf>>) {
          target->set(key.name, read_list<std::string>(node, key, where));
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          *target = read_list<std::string>(node, key, where);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          *target = read_list<int64_t>(node, key, where);
        } else if constexpr (std::is_same_v<T, double>) {
          if (!node.is_number()) wrong_type(key, where, describe(node));
          const toml::value<int64_t>* whole = node.as_integer();  // toml++ gives none from 2^53 on as a double
          *target = whole != nullptr ? static_cast<double>(whole->get()) : node.as_floating_point()->get();
        } else if constexpr (std::is_same_v<T, uint64_t>) {
          const auto value = node.value_exact<int64_t>();
          if (!value) wrong_type(key, where, describe(node));
          require(*value >= 0, "configuration: {} = {}; it must be 0 or more", key.name, *value);
          *target = static_cast<uint64_t>(*value);
        } else {
          const auto value = node.value_exact<T>();
          if (!value) wrong_type(key, where, describe(node));
          *target = *value;
        }
      },
      key.target);
}

const ConfigKey& find_key(const std::vector<ConfigKey>& keys, const std::string& name, const std::string& where) {
  for (const ConfigKey& key : keys) {
    if (key.name == name) return key;
  }
  if (const std::string_view why = why_no_key(name); !why.empty())
    fail(ErrorKind::kInvalidArgument, "{}: no key '{}', and none is needed: {}; leave it out", where, name, why);
  const std::string near = meant_by(name, keys);
  fail(ErrorKind::kInvalidArgument, "{}: no key '{}'.{}", where, name,
       near.empty() ? " `trireme help config` lists the keys." : fmt::format(" Did you mean '{}'?", near));
}

// What the keys may be of which a table has others too: all of a job's, or some that are read before.
enum class Others { kRefuse, kPass };

void read_table(const toml::table& table, const std::string& prefix, const std::vector<ConfigKey>& keys,
                const std::string& source, Others others = Others::kRefuse) {
  const auto is_known = [&](const std::string& name) { return std::ranges::count(keys, name, &ConfigKey::name) > 0; };
  for (const auto& [raw_name, node] : table) {
    const std::string name = prefix + std::string(raw_name.str());
    if (const toml::table* inner = node.as_table()) {
      read_table(*inner, name + ".", keys, source, others);
    } else if (others == Others::kRefuse || is_known(name)) {
      assign(find_key(keys, name, where_of(node, source)), node, source);
    }
  }
}

toml::table parse_toml(std::string_view text, const std::string& source) {
  const auto refuse = [&source](const TomlMistake& wrong) {
    fail(ErrorKind::kInvalidArgument, "{}:{}:{}: {}", source, wrong.line, wrong.column, wrong.text);
  };
  text = without_byte_order_mark(text);
  if (const std::optional<TomlMistake> wrong = mistake_before_parsing(text)) refuse(*wrong);
  toml::table out;
  try {
    static_cast<void>(toml::parse(in_ascii(text), source));
    out = toml::parse(text, source);
  } catch (const toml::parse_error& e) {
    const toml::source_position& at = e.source().begin;
    refuse(mistake_of(text, {static_cast<int>(at.line), static_cast<int>(at.column), std::string(e.description())}));
  }
  return out;
}

// Of a whole number that TOML has no place for.
void refuse_beyond_64_bits(const ConfigKey& key, std::string_view value) {
  const bool is_whole = std::holds_alternative<int64_t*>(key.target) || std::holds_alternative<uint64_t*>(key.target);
  const std::string_view digits = value.substr(value.starts_with('-') || value.starts_with('+') ? 1 : 0);
  const bool is_number = std::ranges::all_of(digits, [](char c) { return '0' <= c && c <= '9'; });
  if (!is_whole || !is_number || digits.size() < 19) return;
  if (digits[0] != '0' && !value.starts_with('-'))
    fail(ErrorKind::kInvalidArgument, "configuration: {} = {}; it must be at most {}", key.name, value,
         std::numeric_limits<int64_t>::max());
}

// --set train.lr=0.001: the value as TOML; a bare word is a string.
void apply_override(const std::string& text, const std::vector<ConfigKey>& keys) {
  const size_t equals = text.find('=');
  require(equals != std::string::npos && equals > 0, "--set '{}': it must be key=value, like train.lr=0.001", text);
  const std::string where = "--set";
  const ConfigKey& key = find_key(keys, text.substr(0, equals), where);
  const std::string value = text.substr(equals + 1);
  require(is_utf8(value), "--set {}: the value is not UTF-8 text", key.name);
  // 'text', as TOML has it, but not a text that only begins so.
  const bool is_literal = value.size() > 1 && value.front() == '\'' && value.find('\'', 1) == value.size() - 1;
  if (value.empty() || (value.front() != '"' && !is_literal)) {
    if (auto* const* target = std::get_if<std::string*>(&key.target)) {
      **target = value;
      return;
    }
    if (const auto* target = std::get_if<TextOf>(&key.target)) return target->set(key.name, value);
  }
  try {
    const toml::table table = parse_toml("value = " + value, where);
    assign(key, *table.get("value"), where);
  } catch (const Error& e) {
    if (e.text().starts_with("configuration: ")) throw;  // of the type, and out of its range
    refuse_beyond_64_bits(key, value);
    wrong_type(key, where, is_literal ? value : fmt::format("'{}'", value));
  }
}

// Which keys there are hangs on the kinds of model, data and optimizer, so that these are read before the others.
void read_kinds(JobConfig& config, const toml::table& table, const std::string& source,
                const std::vector<std::string>& overrides) {
  const std::vector<ConfigKey> kinds = names_of_kinds(config);
  read_table(table, "", kinds, source, Others::kPass);
  for (const std::string& item : overrides) {
    const bool is_kind =
        std::ranges::any_of(kinds, [&](const ConfigKey& key) { return item.starts_with(key.name + "="); });
    if (is_kind) apply_override(item, kinds);
  }
  choose_kinds(config);
}

// Whether all that are replaced are keys of the chosen kinds, each named as it is.
bool are_own(const std::vector<std::string>& overrides, const std::vector<ConfigKey>& keys) {
  return std::ranges::all_of(overrides, [&](const std::string& item) {
    const std::string_view name = std::string_view(item).substr(0, item.find('='));
    return name.size() < item.size() && std::ranges::count(keys, name, &ConfigKey::name) > 0;
  });
}

// One after the other. train.steps and train.epochs say the same, how long a job trains: either replaces the other.
void apply_overrides(JobConfig& config, const std::vector<std::string>& overrides, const std::vector<ConfigKey>& keys) {
  FitOptions& fit = config.train.fit;
  for (const std::string& item : overrides) {
    apply_override(item, keys);
    if (item.starts_with("train.steps=") && fit.steps != 0) fit.epochs = 0;
    if (item.starts_with("train.epochs=") && fit.epochs != 0) fit.steps = 0;
  }
}

void read_keys(JobConfig& config, const toml::table& table, const std::string& source,
               std::vector<std::string> overrides) {
  for (std::string& item : overrides) item = plain_override(item);
  read_kinds(config, table, source, overrides);
  std::vector<ConfigKey> keys = config_keys(config);
  if (table.empty() && are_own(overrides, keys)) {  // so that keys of other kinds are none to look at
    apply_overrides(config, overrides, keys);
    return;
  }
  const OtherKinds others(config);
  keys.insert(keys.end(), others.keys().begin(), others.keys().end());  // after those that count, which are found first
  read_table(table, "", keys, source);
  apply_overrides(config, overrides, keys);
  others.check(config);
}

}  // namespace

std::string plain_override(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return std::string(text);
  const std::string_view key = text.substr(0, equals), value = text.substr(equals + 1);
  const std::string_view name = trim(key);
  return fmt::format("{}={}", name, name.size() < key.size() ? trim(value) : value);
}

JobConfig parse_config(std::string_view text, const std::string& source, const std::vector<std::string>& overrides) {
  JobConfig config;
  read_keys(config, parse_toml(text, source), source, overrides);
  check_values(config);
  return config;
}

void set_keys(JobConfig& config, const std::vector<std::string>& overrides) {
  read_keys(config, toml::table{}, "", overrides);
}

void override_keys(JobConfig& config, const std::vector<std::string>& overrides) {
  set_keys(config, overrides);
  check_values(config);
}

void set_where_usual(JobConfig& config, const std::string& key_and_value) {
  const std::string name = key_and_value.substr(0, key_and_value.find('='));
  JobConfig usual = with_kinds_of(config);
  const std::vector<ConfigKey> keys = config_keys(config);
  const std::vector<ConfigKey> defaults = config_keys(usual);
  if (value_text(find_key(keys, name, "").target) == value_text(find_key(defaults, name, "").target))
    set_keys(config, {key_and_value});
}

JobConfig read_config(const std::string& path, const std::vector<std::string>& overrides) {
  require_file(path, "configuration", "name a TOML file like those in examples/");
  return parse_config(read_file(path), path, overrides);
}

namespace {

// Of values that TOML has one simple text for.
std::optional<std::string> plain_text(const KeyTarget& target) {
  if (auto* const* number = std::get_if<double*>(&target)) {  // in the fewest digits that read back to it
    const std::string text = fmt::format("{}", **number);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  if (auto* const* number = std::get_if<int64_t*>(&target)) return std::to_string(**number);
  if (auto* const* flag = std::get_if<bool*>(&target)) return **flag ? "true" : "false";
  if (auto* const* list = std::get_if<std::vector<std::string>*>(&target); list && (*list)->empty()) return "[]";
  if (auto* const* list = std::get_if<std::vector<int64_t>*>(&target); list && (*list)->empty()) return "[]";
  std::string text;
  if (auto* const* own = std::get_if<std::string*>(&target)) {
    text = **own;
  } else if (const auto* of = std::get_if<TextOf>(&target)) {
    text = of->text();
  } else {
    return std::nullopt;
  }
  const auto is_plain = [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '_' || c == '.';
  };
  if (!std::ranges::all_of(text, is_plain)) return std::nullopt;
  return "'" + text + "'";
}

}  // namespace

std::string value_text(const KeyTarget& target_of_key) {
  if (std::optional<std::string> plain = plain_text(target_of_key)) return std::move(*plain);
  toml::table table;
  std::visit(
      [&](const auto& target) {
        using T = std::remove_pointer_t<std::remove_cvref_t<decltype(target)>>;
        if constexpr (std::is_same_v<T, TextOf>) {
          table.insert("v", target.text());
        } else if constexpr (std::is_same_v<T, std::shared_ptr<const TextsOf>>) {
          toml::array array;
          for (const std::string& item : target->texts()) array.push_back(item);
          table.insert("v", array);
        } else if constexpr (std::is_same_v<T, uint64_t>) {
          table.insert("v", static_cast<int64_t>(*target));
        } else if constexpr (std::is_same_v<T, std::vector<std::string>> || std::is_same_v<T, std::vector<int64_t>>) {
          toml::array array;
          for (const auto& item : *target) array.push_back(item);
          table.insert("v", array);
        } else {
          table.insert("v", *target);
        }
      },
      target_of_key);
  std::ostringstream value;
  value << toml::toml_formatter{table, toml::toml_formatter::default_flags & ~toml::format_flags::indentation};
  const std::string line = value.str();
  return line.substr(line.find('=') + 2);
}

std::string to_toml(JobConfig config) {
  std::string out;
  std::string section;
  for (const ConfigKey& key : config_keys(config)) {
    const size_t dot = key.name.find('.');
    const std::string head = dot == std::string::npos ? "" : key.name.substr(0, dot);
    if (head != section) {
      out += fmt::format("\n[{}]\n", head);
      section = head;
    }
    out.append(key.name, dot == std::string::npos ? 0 : dot + 1, std::string::npos);
    out += " = ";
    out += value_text(key.target);
    out += '\n';
  }
  return out;
}

}  // namespace trireme

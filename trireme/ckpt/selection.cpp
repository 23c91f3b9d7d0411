#include "trireme/ckpt/selection.h"

#include <algorithm>
#include <map>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::ckpt {
namespace {

std::optional<std::string> renamed(const Rename& rename, const std::string& name) {
  if (!matches(rename.from, name)) return std::nullopt;
  const size_t star = rename.from.find('*');
  if (star == std::string::npos) return rename.to;
  const std::string middle = name.substr(star, name.size() - (rename.from.size() - 1));
  std::string out = rename.to;
  return out.replace(out.find('*'), 1, middle);
}

bool any_matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(pattern, name); });
}

void check_patterns(const std::vector<std::string>& patterns, const std::vector<std::string>& names,
                    const TensorSource& source) {
  for (const std::string& pattern : patterns) {
    if (std::ranges::any_of(names, [&](const std::string& name) { return matches(pattern, name); })) continue;
    const std::string near = closest(pattern, names);
    fail(ErrorKind::kInvalidArgument, "'{}' names no tensor of {}{}", pattern, source.text(),
         near.empty() ? "" : fmt::format(". Did you mean '{}'?", near));
  }
}

}  // namespace

Rename parse_rename(std::string_view text) {
  const size_t equals = text.find('=');
  Rename out;
  if (equals != std::string_view::npos) {
    out = {std::string(trim(text.substr(0, equals))), std::string(trim(text.substr(equals + 1)))};
  }
  const auto stars = std::ranges::count(out.from, '*');
  require(!out.from.empty() && !out.to.empty() && stars <= 1 && stars == std::ranges::count(out.to, '*'),
          "'{}' renames nothing; write OLD=NEW, with one * in both or in neither, as in 'transformer.*=*'", text);
  return out;
}

std::vector<Selected> select(const TensorSource& source, const Selection& selection) {
  std::vector<std::string> names;
  for (const std::string& name : source.names()) {
    if (selection.state || !source.is_state_of_parameter(name)) names.push_back(name);
  }
  check_patterns(selection.only, names, source);
  check_patterns(selection.except, names, source);
  std::vector<Selected> out;
  std::vector<bool> used(selection.renames.size());
  std::map<std::string, std::string> owners;
  for (const std::string& name : names) {
    if (!selection.only.empty() && !any_matches(selection.only, name)) continue;
    if (any_matches(selection.except, name)) continue;
    std::string now = name;
    for (size_t i = 0; i < selection.renames.size(); ++i) {
      const std::optional<std::string> other = renamed(selection.renames[i], name);
      if (!other) continue;
      used[i] = true;
      now = *other;
      break;
    }
    const auto [at, is_new] = owners.emplace(now, name);
    require(is_new, "'{}' and '{}' of {} would both be called '{}'", at->second, name, source.text(), now);
    out.push_back({name, std::move(now)});
  }
  for (size_t i = 0; i < used.size(); ++i) {
    require(used[i], "'{}={}' renames no tensor of {}", selection.renames[i].from, selection.renames[i].to,
            source.text());
  }
  require(!out.empty(), "nothing of {} is left", source.text());
  return out;
}

}  // namespace trireme::ckpt

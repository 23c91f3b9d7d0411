#include <fmt/core.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/house/checks.h"

namespace house {
namespace {

// Who includes whom: by name, the names of the others.
using Includes = std::map<std::string, std::set<std::string>>;

// "trireme/layout/reshard" of a file, its header, and the header of its pieces; "" of what is not looked at.
std::string unit_of(std::string_view path) {
  if (!path.starts_with("trireme/") || is_test(path)) return "";
  for (const std::string_view end : {"_impl.h", ".h", ".cpp"}) {
    if (path.ends_with(end)) return std::string(path.substr(0, path.size() - end.size()));
  }
  return "";
}

std::string top_folder(std::string_view unit) {
  return std::string(unit.substr(0, unit.find('/', sizeof("trireme/") - 1)));
}

std::string room_of(std::string_view unit) {
  return std::string(unit.substr(0, unit.rfind('/')));
}

// A shortest way from a name back to itself; empty when there is none.
std::vector<std::string> way_back(const Includes& includes, const std::string& from) {
  std::map<std::string, std::string> before;
  std::vector<std::string> reached{from};
  for (size_t i = 0; i < reached.size(); ++i) {
    const auto next = includes.find(reached[i]);
    if (next == includes.end()) continue;
    for (const std::string& name : next->second) {
      if (before.contains(name)) continue;
      before[name] = reached[i];
      if (name != from) {
        reached.push_back(name);
        continue;
      }
      std::vector<std::string> way{from};
      for (std::string at = before[from]; at != from; at = before[at]) way.insert(way.begin(), at);
      way.insert(way.begin(), from);
      return way;
    }
  }
  return {};
}

// One finding for each circle, told from the first of its names in order of the alphabet.
void add_circles(const Includes& includes, std::vector<std::string>& findings) {
  std::set<std::string> told;
  for (const auto& [name, others] : includes) {
    const std::vector<std::string> way = told.contains(name) ? std::vector<std::string>{} : way_back(includes, name);
    if (way.empty()) continue;
    std::string text;
    for (const std::string& at : way) text += (text.empty() ? "" : " -> ") + at;
    told.insert(way.begin(), way.end());
    findings.push_back(fmt::format("{}: includes itself by way of others: {}", name, text));
  }
}

}  // namespace

std::vector<std::string> check_circles(std::span<const SourceFile> files) {
  Includes units, rooms;
  for (const SourceFile& file : files) {
    const std::string unit = unit_of(file.path);
    if (unit.empty()) continue;
    constexpr std::string_view kStart = "#include \"";
    for (size_t at = 0; at < file.text.size(); at = file.text.find('\n', at) + 1) {
      const std::string_view line = std::string_view(file.text).substr(at, file.text.find('\n', at) - at);
      if (line.starts_with(kStart)) {
        const std::string other = unit_of(line.substr(kStart.size(), line.find('"', kStart.size()) - kStart.size()));
        if (!other.empty() && other != unit && top_folder(other) == top_folder(unit)) {
          units[unit].insert(other);
          if (room_of(other) != room_of(unit)) rooms[room_of(unit)].insert(room_of(other));
        }
      }
      if (file.text.find('\n', at) == std::string::npos) break;
    }
  }
  std::vector<std::string> findings;
  add_circles(units, findings);
  add_circles(rooms, findings);
  return findings;
}

}  // namespace house

#include "trireme/launch/start/slurm.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

constexpr size_t kMostHosts = 65'536;
constexpr size_t kMostDigits = 9;
constexpr size_t kLongestName = 253;  // of a host: RFC 1035

[[noreturn]] void bad_hosts(std::string_view list, std::string_view why) {
  fail(ErrorKind::kInvalidArgument, "SLURM's list of hosts '{}': {}; it must look like 'n[1-3,7],login'",
       list.substr(0, 200), why);
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const bool digits = !text.empty() && text.size() <= kMostDigits &&
                      std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || std::from_chars(text.data(), end, value).ptr != end) return std::nullopt;
  return value;
}

// The pieces between commas that stand outside brackets.
std::vector<std::string_view> split_outside_brackets(std::string_view list) {
  std::vector<std::string_view> out;
  bool inside = false;
  size_t begin = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '[') {
      if (inside) bad_hosts(list, "a bracket inside a bracket");
      inside = true;
    } else if (c == ']') {
      if (!inside) bad_hosts(list, "a bracket is closed that was not opened");
      inside = false;
    } else if (c == ',' && (!inside || i == list.size())) {
      if (inside) bad_hosts(list, "a bracket is not closed");
      if (begin == i) bad_hosts(list, "a name is empty");
      out.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return out;
}

// Of the names that this one stands for. A bracket gives one character at least.
size_t shortest_length(std::string_view name) {
  size_t length = 0;
  bool inside = false;
  for (const char c : name) {
    if (!inside) ++length;
    if (c == '[' || c == ']') inside = c == '[';
  }
  return length;
}

void require_few(std::string_view list, size_t hosts) {
  if (hosts > kMostHosts) bad_hosts(list, fmt::format("it has more than {} hosts", kMostHosts));
}

}  // namespace

// "08-10,12" is 08, 09, 10, 12: the width of the first number is kept.
HostList::Bracket HostList::bracket_of(std::string_view list, std::string_view ranges) {
  Bracket out;
  for (size_t at = 0; at <= ranges.size();) {
    const size_t end = std::min(ranges.find(',', at), ranges.size());
    const std::string_view range = ranges.substr(at, end - at);
    at = end + 1;
    const size_t dash = std::min(range.find('-'), range.size());
    const auto first = number(range.substr(0, dash));
    const auto last = dash < range.size() ? number(range.substr(dash + 1)) : first;
    if (!first || !last || *first > *last) {
      bad_hosts(list, fmt::format("'{}' is not a range of numbers", range));
    }
    out.ranges.push_back({*first, static_cast<size_t>(*last - *first) + 1, static_cast<int>(dash)});
    out.count += out.ranges.back().count;
    require_few(list, out.count);
  }
  return out;
}

HostList::Name HostList::name_of(std::string_view list, std::string_view name) {
  if (shortest_length(name) > kLongestName)
    bad_hosts(list, fmt::format("a name has more than {} characters", kLongestName));
  Name out;
  while (true) {
    const size_t open = std::min(name.find('['), name.size());
    out.between.emplace_back(name.substr(0, open));
    if (open == name.size()) return out;
    const size_t close = name.find(']');
    out.brackets.push_back(bracket_of(list, name.substr(open + 1, close - open - 1)));
    out.count *= out.brackets.back().count;
    require_few(list, out.count);
    name.remove_prefix(close + 1);
  }
}

HostList::HostList(std::string_view list) {
  for (const std::string_view name : split_outside_brackets(list)) {
    names_.push_back(name_of(list, name));
    size_ += names_.back().count;
    require_few(list, size_);
  }
}

std::string HostList::operator[](size_t i) const {
  auto name = names_.begin();
  for (; i >= name->count; ++name) i -= name->count;
  std::string out;
  size_t left = name->count;
  for (size_t k = 0; k < name->between.size(); ++k) {
    out += name->between[k];
    if (k == name->brackets.size()) break;
    left /= name->brackets[k].count;
    size_t at = i / left;
    i %= left;
    auto range = name->brackets[k].ranges.begin();
    for (; at >= range->count; ++range) at -= range->count;
    out += fmt::format("{:0{}}", range->first + static_cast<int>(at), range->width);
  }
  return out;
}

std::vector<int> expand_tasks(std::string_view list) {
  std::vector<int> out;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    std::string_view part = list.substr(at, end - at);
    at = end + 1;
    std::optional<int> times = 1;
    if (const size_t open = part.find("(x"); open != std::string_view::npos && part.back() == ')') {
      times = number(part.substr(open + 2, part.size() - open - 3));
      part = part.substr(0, open);
    }
    const auto tasks = number(part);
    require(tasks && times && *tasks >= 1 && *times >= 1 && out.size() + static_cast<size_t>(*times) <= kMostHosts,
            "SLURM's ranks on each host '{}': it must look like '4(x2),3', for at most {} hosts", list.substr(0, 200),
            kMostHosts);
    out.insert(out.end(), static_cast<size_t>(*times), *tasks);
  }
  return out;
}

}  // namespace trireme::launch

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <sstream>

#include "tests/house/checks.h"

namespace house {
namespace {

using NameSet = std::set<std::string, std::less<>>;

// What a header of the standard library has, as "header: name ...", as far as headers here use it. Of a name that
// several have, any of them will do.
constexpr std::array<std::string_view, 40> kStandard{
    "algorithm: clamp copy copy_n equal fill_n find lower_bound max min ranges::all_of ranges::equal ranges::fill "
    "ranges::find ranges::max ranges::sort rotate sort",
    "array: array initializer_list size",
    "atomic: atomic atomic_flag memory_order_relaxed memory_order_release",
    "barrier: barrier",
    "bit: bit_cast bit_floor bit_width",
    "charconv: errc from_chars",
    "chrono: chrono::duration chrono::microseconds chrono::milliseconds chrono::seconds chrono::steady_clock "
    "chrono::system_clock",
    "cmath: pow sqrt",
    "concepts: convertible_to integral same_as",
    "condition_variable: condition_variable",
    "coroutine: coroutine_handle noop_coroutine suspend_always",
    "cstddef: byte ptrdiff_t",
    "cstdint: int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t",
    "cstdio: FILE",
    "cstring: memcpy",
    "deque: deque initializer_list size",
    "exception: current_exception exception exception_ptr rethrow_exception",
    "functional: function hash less",
    "initializer_list: initializer_list",
    "iterator: distance forward_iterator forward_iterator_tag size",
    "limits: numeric_limits",
    "list: list initializer_list size",
    "map: initializer_list less map move pair size",
    "memory: addressof allocator construct_at destroy destroy_at destroy_n make_shared make_unique shared_ptr "
    "static_pointer_cast uninitialized_move unique_ptr",
    "memory_resource: pmr::memory_resource pmr::new_delete_resource",
    "mutex: lock_guard mutex unique_lock",
    "optional: nullopt optional",
    "random: minstd_rand mt19937_64 uniform_int_distribution",
    "set: initializer_list less set size",
    "source_location: source_location",
    "span: as_bytes byte size span",
    "string: char_traits initializer_list size string to_string",
    "string_view: string_view",
    "thread: thread this_thread::sleep_for",
    "tuple: apply tuple tuple_size_v",
    "unordered_map: initializer_list pmr::unordered_map size unordered_map unordered_multimap",
    "unordered_set: initializer_list pmr::unordered_set size unordered_multiset unordered_set",
    "utility: exchange forward initializer_list move pair swap",
    "variant: get_if variant",
    "vector: initializer_list move pair pmr::vector size vector"};
// Traits have names of one kind.
constexpr std::array<std::string_view, 4> kTraits{"is_", "remove_", "type_identity", "conditional"};

// Of each name of std the headers that have it.
const std::map<std::string, NameSet, std::less<>>& standard() {
  static const std::map<std::string, NameSet, std::less<>> all = [] {
    std::map<std::string, NameSet, std::less<>> out;
    for (const std::string_view row : kStandard) {
      std::istringstream names{std::string(row.substr(row.find(' ')))};
      for (std::string name; names >> name;) out[name].emplace(row.substr(0, row.find(':')));
    }
    out["pmr::deque"] = {"deque"};
    return out;
  }();
  return all;
}

// A header, as far as this check goes by it.
struct Header {
  std::string path, text;             // the text without comments and literals
  std::vector<std::string> standard;  // <x>
  std::vector<std::string> own;       // "x"
  NameSet declared;                   // types, those of others that it declares included
  NameSet reached;                    // itself and all it includes
  NameSet reached_standard;
};
using Headers = std::map<std::string, Header, std::less<>>;

// The word that begins at `at`; "" where none does.
std::string_view word_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && is_word(text[end])) ++end;
  return text.substr(at, end - at);
}

bool is_type_name(std::string_view word) {
  return word.size() > 1 && word[0] >= 'A' && word[0] <= 'Z';
}

// Calls fn(word, place) for each word of the text.
void each_word(std::string_view text, const std::function<void(std::string_view, size_t)>& fn) {
  for (size_t at = 0; at < text.size();) {
    const std::string_view word = word_at(text, at);
    if (!word.empty()) fn(word, at);
    at += std::max<size_t>(word.size(), 1);
  }
}

// NameSet after `struct`, `using` and their like; attributes and dots between them are left out.
NameSet declared_in(std::string_view text) {
  constexpr std::array<std::string_view, 8> kBegin{"struct", "class",   "union",    "enum",
                                                   "using",  "concept", "typename", "typedef"};
  NameSet out;
  each_word(text, [&](std::string_view word, size_t at) {
    if (std::ranges::find(kBegin, word) == kBegin.end()) return;
    constexpr std::string_view kBetween = " .\n";
    size_t next = text.find_first_not_of(kBetween, at + word.size());
    if (next != text.npos && text.substr(next).starts_with("[["))
      next = text.find_first_not_of(kBetween, text.find("]]", next) + 2);
    if (next != text.npos) out.emplace(word_at(text, next));
  });
  return out;
}

Headers headers_of(std::span<const SourceFile> files) {
  Headers out;
  for (const SourceFile& file : files) {
    if (!file.path.starts_with("trireme/") || !file.path.ends_with(".h")) continue;
    Header header{.path = file.path, .text = without_comments_and_literals(file.text)};
    std::istringstream lines(file.text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("#include <")) header.standard.push_back(line.substr(10, line.find('>') - 10));
      if (line.starts_with("#include \"")) header.own.push_back(line.substr(10, line.find('"', 10) - 10));
    }
    header.declared = declared_in(header.text);
    out.emplace(file.path, std::move(header));
  }
  return out;
}

void reach(const Headers& headers, const std::string& path, Header& from) {
  const auto found = headers.find(path);
  if (found == headers.end() || !from.reached.insert(path).second) return;
  from.reached_standard.insert(found->second.standard.begin(), found->second.standard.end());
  for (const std::string& own : found->second.own) reach(headers, own, from);
}

// "string" of std::string and of std::string::npos, "chrono::seconds" of std::chrono::seconds.
std::string standard_name(std::string_view text, size_t at) {
  const std::string_view first = word_at(text, at);
  constexpr std::array<std::string_view, 5> kSpaces{"chrono", "ranges", "pmr", "filesystem", "this_thread"};
  if (std::ranges::find(kSpaces, first) == kSpaces.end()) return std::string(first);
  return fmt::format("{}::{}", first, word_at(text, at + first.size() + 2));
}

// What is missing for a name of std, or "".
std::string missing_standard(const Header& header, const std::string& name) {
  const auto has = [&](std::string_view include) { return header.reached_standard.contains(include); };
  const auto found = standard().find(name);
  if (found == standard().end()) {
    if (std::ranges::any_of(kTraits, [&](std::string_view begin) { return name.starts_with(begin); }))
      return has("type_traits") ? "" : "<type_traits>";
    return "a row of tests/house/own_includes.cpp, which has no such name";
  }
  if (std::ranges::any_of(found->second, has)) return "";
  return fmt::format("<{}>", *found->second.begin());
}

bool has_folder(const Header& header, std::string_view folder) {
  return std::ranges::any_of(header.reached_standard,
                             [&](const std::string& include) { return include.starts_with(folder); });
}

}  // namespace

std::vector<std::string> check_own_includes(std::span<const SourceFile> files) {
  Headers headers = headers_of(files);
  std::map<std::string, NameSet, std::less<>> types;  // of each the headers that declare it
  for (const auto& [path, header] : headers) {
    for (const std::string& name : header.declared) {
      if (is_type_name(name)) types[name].insert(path);
    }
  }
  std::vector<std::string> findings;
  for (auto& [path, header] : headers) {
    reach(headers, path, header);
    NameSet told;
    const std::string_view text = header.text;
    each_word(text, [&](std::string_view word, size_t at) {
      const std::string_view before = text.substr(0, at);
      if (before.ends_with('.') || before.ends_with("->")) return;  // a member
      const bool in_std = before.ends_with("std::");
      const std::string name = in_std ? standard_name(text, at) : std::string(word);
      std::string missing;
      if (in_std || word.ends_with("_t")) {
        if (in_std || standard().contains(name)) missing = missing_standard(header, name);
      } else if (word == "fmt" || word == "nlohmann") {
        if (text.substr(at).starts_with(name + "::") && !has_folder(header, name + "/"))
          missing = fmt::format("<{}/...>", name);
      } else if (const auto type = types.find(word); type != types.end()) {
        const bool found =
            std::ranges::any_of(type->second, [&](const std::string& by) { return header.reached.contains(by); });
        if (!found) missing = fmt::format("\"{}\"", *type->second.begin());
      }
      if (missing.empty() || !told.insert(name).second) return;
      const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
      findings.push_back(fmt::format("{}:{}: '{}' needs {}, which it does not include", path, line, name, missing));
    });
  }
  return findings;
}

}  // namespace house

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/house/checks.h"

namespace house {
namespace {

constexpr std::string_view kName = "/README.md";
constexpr std::string_view kIncludes = "May include: ";

using FolderNames = std::set<std::string, std::less<>>;

// Of a folder and all inside it: the names of files, with and without what ends them, and of rooms, "engine" and
// "engine/"; each also with the rooms around it, "engine/group".
FolderNames names_in(std::string_view folder, std::span<const SourceFile> files) {
  FolderNames out;
  for (const SourceFile& file : files) {
    if (!file.path.starts_with(folder)) continue;
    const std::string path = file.path.substr(folder.size());
    for (size_t from = 0; from != std::string::npos;
         from = path.find('/', from) == std::string::npos ? path.npos : path.find('/', from) + 1) {
      for (size_t slash = path.find('/', from); slash != std::string::npos; slash = path.find('/', slash + 1)) {
        out.insert(path.substr(from, slash - from));
        out.insert(path.substr(from, slash + 1 - from));
      }
      out.insert(path.substr(from));
      for (const std::string_view end : {"_impl.h", "_test.cpp", ".h", ".cpp"}) {
        if (path.ends_with(end)) out.insert(path.substr(from, path.size() - end.size() - from));
      }
    }
  }
  return out;
}

bool is_file_name(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) {
    return is_word(c) ? std::isupper(static_cast<unsigned char>(c)) == 0 : c == '.' || c == '/';
  });
}

// "base, tensor" of a row of tools/layers.txt; of one with all folders before it that may be said instead.
std::string row_text(const LayerTable& table, size_t at, std::string_view said) {
  constexpr std::string_view kAll = "every folder before it";
  const std::set<std::string>& may = table.rows[at].may_include;
  if (may.empty()) return "nothing";
  if (may.size() == at && said == kAll) return std::string(kAll);
  std::vector<std::string> in_order;
  for (const LayerRow& row : table.rows) {
    if (may.contains(row.folder)) in_order.push_back(row.folder);
  }
  return fmt::format("{}", fmt::join(in_order, ", "));
}

}  // namespace

std::vector<std::string> check_readmes(const LayerTable& table, std::span<const SourceFile> files) {
  const FolderNames all = names_in("trireme/", files);
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (!file.path.starts_with("trireme/") || !file.path.ends_with(kName)) continue;
    const std::string folder = file.path.substr(0, file.path.size() - kName.size() + 1);
    const FolderNames own = names_in(folder, files);
    int number = 0;
    for (std::string_view text = file.text; !text.empty();) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      ++number;
      for (size_t at = 0; line.starts_with('|') && (at = line.find('`', at)) != std::string_view::npos;) {
        const size_t end = std::min(line.find('`', at + 1), line.size());
        const std::string_view word = line.substr(at + 1, end - at - 1);
        const bool is_path = word.find('/') != std::string_view::npos;
        if (is_file_name(word) && !own.contains(word) && !(is_path && all.contains(word)))
          findings.push_back(fmt::format("{}:{}: '{}' is no file and no room of the folder", file.path, number, word));
        at = std::min(end + 1, line.size());
      }
      if (!line.starts_with(kIncludes)) continue;
      const auto row = std::ranges::find(table.rows, folder.substr(8, folder.size() - 9), &LayerRow::folder);
      if (row == table.rows.end()) continue;
      std::string_view said = line.substr(kIncludes.size());
      if (said.ends_with('.')) said.remove_suffix(1);
      const std::string may = row_text(table, static_cast<size_t>(row - table.rows.begin()), said);
      if (said != may)
        findings.push_back(fmt::format("{}:{}: by tools/layers.txt it may include: {}", file.path, number, may));
    }
  }
  return findings;
}

}  // namespace house

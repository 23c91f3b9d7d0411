#include "trireme/train/plan/pages/layer_cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "trireme/parallel/asked/paths.h"

namespace trireme {
namespace {

// A path around its first number.
struct PathAroundNumber {
  std::string before, after;
  std::optional<int> number;
};

PathAroundNumber around_number(const std::string& path) {
  std::string_view rest = path;
  while (!rest.empty()) {
    const size_t begin = path.size() - rest.size();
    const std::string_view part = next_part(rest);
    const std::string_view word = part.substr(0, part.find('/'));  // "h.0/add" has an op after the number
    if (const auto number = trireme::number_of(word))
      return {path.substr(0, begin), path.substr(begin + word.size()), number};
  }
  return {path, "", std::nullopt};
}

// "0..3,6", of numbers in their order.
std::string ranges_of(const std::vector<int>& numbers) {
  std::string out;
  for (size_t first = 0, end = 0; first < numbers.size(); first = end) {
    while (end < numbers.size() && numbers[end] - numbers[first] == static_cast<int>(end - first)) ++end;
    if (!out.empty()) out += ",";
    out +=
        end - first == 1 ? fmt::format("{}", numbers[first]) : fmt::format("{}..{}", numbers[first], numbers[end - 1]);
  }
  return out;
}

std::vector<LayerCut> folded_cuts(const std::vector<LayerCut>& all) {
  struct Fold {
    LayerCut cut;
    PathAroundNumber path;
    std::vector<int> numbers;
  };
  std::vector<Fold> folds;
  std::map<std::string, size_t> places;
  for (const LayerCut& each : all) {
    PathAroundNumber path = around_number(each.name);
    const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", path.number ? "n" : "", path.before, path.after,
                                        each.cut, each.type, each.state);
    const auto [place, is_new] = places.try_emplace(key, folds.size());
    if (is_new) folds.push_back({each, path, {}});
    Fold& fold = folds[place->second];
    if (path.number) fold.numbers.push_back(*path.number);
  }
  std::vector<LayerCut> out;
  for (Fold& fold : folds) {
    if (fold.path.number) {
      std::ranges::sort(fold.numbers);
      fold.cut.name = fold.path.before + ranges_of(fold.numbers) + fold.path.after;
      fold.cut.count = static_cast<int64_t>(fold.numbers.size());
    }
    out.push_back(std::move(fold.cut));
  }
  return out;
}

}  // namespace

std::vector<LayerCut> weight_cuts(const Graph& graph, const Strategy& strategy) {
  std::map<ValueId, std::string> cuts;
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    cuts.emplace(graph.inputs()[i].value, to_string(strategy.inputs[i], strategy.mesh));
  std::vector<LayerCut> out;
  for (const Input& input : graph.inputs()) {
    if (input.role != Role::kParameter) continue;
    const Update* const update = graph.update_of(input.value);
    const bool has_state = update != nullptr && !update->states.empty();
    out.push_back({.name = input.name,
                   .cut = cuts.at(input.value),
                   .type = to_string(graph.type(input.value)),
                   .state = has_state ? cuts.at(update->states.front()) : ""});
  }
  return folded_cuts(out);
}

std::vector<LayerCut> op_cuts(const Graph& graph, const Strategy& strategy) {
  constexpr std::string_view kNode = "node \"";
  const std::string text = to_string(graph, strategy);
  std::vector<LayerCut> out;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (!line.starts_with(kNode)) continue;
    line.remove_prefix(kNode.size());
    const size_t quote = line.find('"');
    if (quote == std::string_view::npos || quote + 2 > line.size()) continue;
    out.push_back({.name = std::string(line.substr(0, quote)),
                   .cut = std::string(line.substr(quote + 2)),
                   .type = "",
                   .state = ""});
  }
  return folded_cuts(out);
}

void name_all_blocks(std::string_view container, const std::vector<std::vector<int>>& blocks_of_kind,
                     std::vector<LayerCut>& cuts) {
  const size_t kinds = blocks_of_kind.size();
  for (LayerCut& cut : cuts) {
    for (size_t some = 1; some < size_t{1} << kinds; ++some) {
      std::vector<int> reduced, all;
      for (size_t kind = 0; kind < kinds; ++kind) {
        if ((some >> kind & 1) == 0) continue;
        reduced.push_back(static_cast<int>(kind));
        all.insert(all.end(), blocks_of_kind[kind].begin(), blocks_of_kind[kind].end());
      }
      const std::string prefix = fmt::format("{}.{}", container, ranges_of(reduced));
      const std::string_view rest = std::string_view(cut.name).substr(std::min(prefix.size(), cut.name.size()));
      const bool is_named = cut.name.starts_with(prefix) && !rest.starts_with("..") && rest.find_first_of("./") == 0;
      if (!is_named) continue;
      std::ranges::sort(all);
      cut.name = fmt::format("{}.{}{}", container, ranges_of(all), rest);
      cut.count = static_cast<int64_t>(all.size());
      break;
    }
  }
}

std::vector<LayerCut> stage_cuts(const Strategy& strategy) {
  // A module's own parts are of its stage: only the outermost are named.
  std::vector<LayerCut> out;
  for (const auto& [scope, stage] : strategy.stages) {
    const PathAroundNumber path = around_number(scope);
    const std::string top =
        path.number ? fmt::format("{}{}", path.before, *path.number) : scope.substr(0, scope.find('.'));
    const std::string cut = fmt::format("{}", stage);
    if (!out.empty() && out.back().name == top && out.back().cut == cut) continue;
    out.push_back({.name = top, .cut = cut, .type = "", .state = ""});
  }
  return folded_cuts(out);
}

}  // namespace trireme

#include "trireme/pass/pass_remark.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme {

std::vector<std::string> remarks_of_crews(std::span<const std::vector<PassRemark>> crews) {
  std::vector<std::string> out;
  const auto add = [&](std::string text) {
    if (std::ranges::find(out, text) == out.end()) out.push_back(std::move(text));
  };
  for (size_t crew = 0; crew < crews.size(); ++crew) {
    for (const PassRemark& remark : crews[crew]) {
      const auto says_so = [&](const std::vector<PassRemark>& other) {
        return std::ranges::any_of(other, [&](const PassRemark& r) { return r.is_nothing && r.text == remark.text; });
      };
      if (remark.is_nothing && !std::ranges::all_of(crews, says_so)) continue;
      const bool is_of_all = remark.is_nothing || crews.size() == 1;
      add(is_of_all ? remark.text : fmt::format("crew {}: {}", crew, remark.text));
    }
  }
  return out;
}

}  // namespace trireme

#include "trireme/base/strict_json_impl.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/utf8.h"

namespace trireme {
namespace {

using nlohmann::json;

constexpr int kMostDepth = 16;

}  // namespace

json parse_json(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (depth > kMostDepth) fail(ErrorKind::kCorrupt, "{}: JSON deeper than {} levels", where, kMostDepth);
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      fail(ErrorKind::kCorrupt, "{}: the name '{}' appears twice", where, parsed.get<std::string>());
    }
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& e) {
    fail(ErrorKind::kCorrupt, "{}: not valid JSON: {}", where, printable(e.what()));
  }
}

}  // namespace trireme

// JSON from files we do not trust: parsed with a limit on depth and without duplicate keys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace trireme {

// Throws kCorrupt; `where` names the text.
nlohmann::json parse_json(std::string_view text, const std::string& where);

}  // namespace trireme

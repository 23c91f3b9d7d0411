// JSON from files we do not trust, read member by member with kCorrupt errors that name the place.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "trireme/base/strict_json_impl.h"
#include "trireme/tensor/shape.h"

namespace trireme::ckpt {

// The member of an object; `where` says what the object is.
const nlohmann::json& member(const nlohmann::json& object, const char* key, const std::string& where);

int64_t to_integer(const nlohmann::json& value, const std::string& where);  // 0 <= value < 2^63
std::string to_text(const nlohmann::json& value, const std::string& where);
Shape to_shape(const nlohmann::json& value,
               const std::string& where);  // its element count fits 2^62
std::map<std::string, std::string> to_text_map(const nlohmann::json& value, const std::string& where);

}  // namespace trireme::ckpt

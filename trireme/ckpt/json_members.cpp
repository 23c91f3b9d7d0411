#include "trireme/ckpt/json_members_impl.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/tensor/most_elements.h"

namespace trireme::ckpt {
namespace {

using nlohmann::json;

}  // namespace

const json& member(const json& object, const char* key, const std::string& where) {
  if (!object.is_object()) fail(ErrorKind::kCorrupt, "{} is {}, not an object", where, object.type_name());
  const auto at = object.find(key);
  if (at == object.end()) fail(ErrorKind::kCorrupt, "{} has no '{}'", where, key);
  return *at;
}

int64_t to_integer(const json& value, const std::string& where) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMost) {
    fail(ErrorKind::kCorrupt, "{} is {}, not an integer from 0 to 2^63 - 1", where,
         value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 40));
  }
  return value.get<int64_t>();
}

std::string to_text(const json& value, const std::string& where) {
  if (!value.is_string()) fail(ErrorKind::kCorrupt, "{} is {}, not a string", where, value.type_name());
  return value.get<std::string>();
}

Shape to_shape(const json& value, const std::string& where) {
  if (!value.is_array()) fail(ErrorKind::kCorrupt, "{} is {}, not a list", where, value.type_name());
  if (value.size() > Shape::kMaxRank) {
    fail(ErrorKind::kCorrupt, "{} has {} dimensions; at most {} are supported", where, value.size(), Shape::kMaxRank);
  }
  Shape out;
  int64_t elements = 1;
  for (const json& item : value) {
    const int64_t size = to_integer(item, where);
    if (size > kMostElements || (size > 0 && elements > kMostElements / size)) {
      fail(ErrorKind::kCorrupt, "{} has more than 2^58 elements", where);
    }
    if (size > 0) elements *= size;
    out.push_back(size);
  }
  return out;
}

std::map<std::string, std::string> to_text_map(const json& value, const std::string& where) {
  if (!value.is_object()) fail(ErrorKind::kCorrupt, "{} is {}, not an object", where, value.type_name());
  std::map<std::string, std::string> out;
  for (const auto& [key, text] : value.items()) out[key] = to_text(text, fmt::format("{} '{}'", where, key));
  return out;
}

}  // namespace trireme::ckpt

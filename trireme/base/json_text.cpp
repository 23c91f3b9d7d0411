#include "trireme/base/json_text.h"

#include <nlohmann/json.hpp>

namespace trireme {
namespace {

std::string dumped(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <class Value>
std::string array_text(const std::vector<Value>& values, std::string (*text)(const Value& value)) {
  std::string out = "[";
  for (const Value& value : values) out += (out.size() > 1 ? "," : "") + text(value);
  return out + "]";
}

}  // namespace

JsonText::JsonText(std::string_view value) : text_(dumped(value)) {}
JsonText::JsonText(const std::string& value) : text_(dumped(value)) {}
JsonText::JsonText(const char* value) : text_(dumped(value)) {}
JsonText::JsonText(bool value) : text_(value ? "true" : "false") {}
JsonText::JsonText(double value) : text_(dumped(value)) {}
JsonText::JsonText(int value) : text_(std::to_string(value)) {}
JsonText::JsonText(int64_t value) : text_(std::to_string(value)) {}
JsonText::JsonText(uint64_t value) : text_(std::to_string(value)) {}
JsonText::JsonText(const JsonObject& value) : text_(value.text()) {}
JsonText::JsonText(const std::vector<JsonText>& values)
    : text_(array_text<JsonText>(values, [](const JsonText& value) { return value.text(); })) {}
JsonText::JsonText(const std::vector<std::string>& values)
    : text_(array_text<std::string>(values, [](const std::string& value) { return dumped(value); })) {}

void JsonObject::add(const JsonObject& other) {
  members_.insert(members_.end(), other.members_.begin(), other.members_.end());
}

std::string JsonObject::text() const {
  std::string out = "{";
  for (const JsonMember& member : members_)
    out += (out.size() > 1 ? "," : "") + dumped(member.key) + ":" + member.value.text();
  return out + "}";
}

}  // namespace trireme

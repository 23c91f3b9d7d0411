// JSON that is written: texts of values, for lines that programs read. Whoever includes this need not compile the
// library that parses JSON.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

class JsonObject;

// A value. A text has U+FFFD for what is no UTF-8; a number that is not finite is null.
class JsonText {
 public:
  JsonText(std::string_view value);    // NOLINT: what stands in a member is a value, whatever its type
  JsonText(const std::string& value);  // NOLINT
  JsonText(const char* value);         // NOLINT
  JsonText(bool value);                // NOLINT
  JsonText(double value);              // NOLINT
  JsonText(int value);                 // NOLINT
  JsonText(int64_t value);             // NOLINT
  JsonText(uint64_t value);            // NOLINT
  JsonText(const JsonObject& value);   // NOLINT
  // Arrays.
  JsonText(const std::vector<JsonText>& values);     // NOLINT
  JsonText(const std::vector<std::string>& values);  // NOLINT

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct JsonMember {
  std::string key;
  JsonText value;
};

// Its members stand in the order in which they are added; names are not added twice.
class JsonObject {
 public:
  JsonObject(std::initializer_list<JsonMember> members) : members_(members) {}

  void add(std::string key, JsonText value) { members_.push_back({std::move(key), std::move(value)}); }
  void add(const JsonObject& other);
  const std::vector<JsonMember>& members() const { return members_; }
  std::string text() const;  // on one line

 private:
  std::vector<JsonMember> members_;
};

}  // namespace trireme

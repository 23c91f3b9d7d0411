// SharedText: an immutable text with many holders, so a copy costs as much as that of a pointer.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/text_formatter.h"

namespace trireme {

class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string_view text)  // NOLINT: a text is one that is shared
      : text_(text.empty() ? nullptr : std::make_shared<const std::string>(text)) {}
  SharedText(const std::string& text) : SharedText(std::string_view(text)) {}  // NOLINT: the same
  SharedText(const char* text) : SharedText(std::string_view(text)) {}         // NOLINT: the same

  std::string_view view() const { return text_ ? std::string_view(*text_) : std::string_view(); }
  operator std::string_view() const { return view(); }  // NOLINT: it reads as a text
  bool empty() const { return text_ == nullptr; }

  friend bool operator==(const SharedText& a, const SharedText& b) {
    return a.text_ == b.text_ || a.view() == b.view();
  }
  friend bool operator==(const SharedText& a, std::string_view b) { return a.view() == b; }
  friend bool operator==(const SharedText& a, const std::string& b) { return a.view() == b; }
  friend bool operator==(const SharedText& a, const char* b) { return a.view() == b; }

 private:
  std::shared_ptr<const std::string> text_;  // null: ""
};

}  // namespace trireme

template <>
struct fmt::formatter<trireme::SharedText> : trireme::TextFormatter {
  fmt::appender format(const trireme::SharedText& text, fmt::format_context& context) const {
    return put(text.view(), context);
  }
};

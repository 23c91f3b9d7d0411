// ScopePattern: a pattern for scopes of a model and everything inside them: "h.3"; "h.*", "*.bias", with `*` for any
// characters; "h.0..5" for a part of the path that is a number from 0 to 5.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/words.h"

namespace trireme {

class ScopePattern {
 public:
  ScopePattern() = default;
  template <Text T>
  ScopePattern(const T& written) : text_(std::string_view(written)) {}  // NOLINT: written as text

  bool matches(std::string_view scope) const;
  const std::string& text() const { return text_; }

  friend bool operator==(const ScopePattern&, const ScopePattern&) = default;

 private:
  std::string text_;
};

}  // namespace trireme

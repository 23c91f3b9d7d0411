// ScopePattern: a pattern for scopes of a model and everything inside them: "h.3"; "h.*", where `*` stands for any
// characters, as in base/words.h; "h.0..5" for a part of the path that is a number from 0 to 5.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/words.h"

namespace trireme {

class ScopePattern {
 public:
  ScopePattern() = default;
  template <Text T>
  ScopePattern(const T& written) : ScopePattern(read(written)) {}  // NOLINT: written as text

  bool matches(std::string_view scope) const;
  const std::string& text() const { return text_; }

  friend bool operator==(const ScopePattern& a, const ScopePattern& b) { return a.text_ == b.text_; }

 private:
  // A name, which with `*` may be several parts of a path, or a number of a range.
  struct Part {
    std::string name;
    int first = 0, last = -1;
    bool matches(std::string_view path) const;
  };
  static ScopePattern read(std::string_view text);

  std::string text_;
  std::vector<Part> parts_;
};

}  // namespace trireme

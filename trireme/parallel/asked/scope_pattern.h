// ScopePattern: a pattern for scopes of a model and everything inside them: "h.3"; "h.*", "*.bias", with `*` for any
// characters; "h.0..5" for a part of the path that is a number from 0 to 5.
#pragma once

#include <cstddef>
#include <optional>
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
  // The same for the scope alone, without what is inside it: "h.*" names "h.3", and "h.3.mlp" as well.
  bool names(std::string_view scope) const;
  // Of a scope that it matches the outermost part that it names: "h.3" of "h.3.mlp", by "h.*" or "h.0..5". "": nothing.
  std::string_view outermost(std::string_view scope) const;
  const std::string& text() const { return text_; }

  friend bool operator==(const ScopePattern&, const ScopePattern&) = default;

 private:
  // Where the first part of the path ends that it names, or whether it names the whole path.
  std::optional<size_t> find(std::string_view path, bool whole) const;

  std::string text_;
};

}  // namespace trireme

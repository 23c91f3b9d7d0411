// Piece: how the ranks' pieces of an input form one tensor, in a graph that is cut by hand. As text: "" if every rank
// has the same; "own" (kOwnPiece) if each rank has a tensor of its own, and nothing says how they would form one; or a
// layout of the leading dimensions by the mesh's axes, "[tp, -]".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/words.h"
#include "trireme/layout/named_layout.h"

namespace trireme {

inline constexpr std::string_view kOwnPiece = "own";

class Piece {
 public:
  Piece() = default;
  template <Text T>
  Piece(const T& written) {  // NOLINT: written as text; throws kInvalidArgument for what is none of these
    const std::string_view view = written;
    is_own_ = view == kOwnPiece;
    if (!is_own_ && !view.empty()) layout_ = NamedLayout(view);
  }

  Piece(NamedLayout layout) : layout_(std::move(layout)) {}  // NOLINT: pieces of one tensor

  bool empty() const { return !is_own_ && !layout_; }
  bool is_own() const { return is_own_; }
  // Null where the pieces make no one tensor, or are all the same.
  const NamedLayout* layout() const { return layout_ ? &*layout_ : nullptr; }

  friend bool operator==(const Piece&, const Piece&) = default;

 private:
  bool is_own_ = false;
  std::optional<NamedLayout> layout_;
};

inline std::string to_string(const Piece& piece) {
  if (piece.is_own()) return std::string(kOwnPiece);
  return piece.layout() == nullptr ? "" : to_string(*piece.layout());
}

}  // namespace trireme

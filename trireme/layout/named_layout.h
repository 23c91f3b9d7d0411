// NamedLayout: a layout as a user asks for it, before the mesh is known: by the names of axes. Its text is that of a
// layout (layout/layout.h): "[dp, tp*sp, -] partial(sum: mp)".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/words.h"
#include "trireme/layout/layout.h"

namespace trireme {

struct NamedLayout {
  struct Partial {
    Reduction reduction = Reduction::kSum;
    AxisNames axes;
    friend bool operator==(const Partial&, const Partial&) = default;
  };

  std::vector<AxisNames> dims;   // per dimension the axes that cut it
  std::vector<Partial> partial;  // as it is written

  NamedLayout() = default;
  template <Text T>
  NamedLayout(const T& written) : NamedLayout(read(written)) {}  // NOLINT: written as text; throws kInvalidArgument
  NamedLayout(const Layout& layout, const Mesh& mesh);

  int rank() const { return static_cast<int>(dims.size()); }
  bool is_partial() const { return !partial.empty(); }
  // Throws kNotFound for an axis that the mesh does not have.
  Layout on(const Mesh& mesh) const;

  friend bool operator==(const NamedLayout&, const NamedLayout&) = default;

 private:
  static NamedLayout read(std::string_view text);
};

std::string to_string(const NamedLayout& layout);
// One after the other: "[dp, -], [-, tp]".
std::string to_string(const std::vector<NamedLayout>& layouts);

}  // namespace trireme

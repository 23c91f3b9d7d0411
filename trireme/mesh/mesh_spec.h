// MeshSpec: the mesh that a user asks for: axes of ranks, and the two reserved axes that take no ranks. "micro_batch"
// (mesh/mesh.h) counts parts of the batch that are computed one after the other; "interleaved_parallel" is for ops that
// each rank computes in that many copies. It is written as text, "dp=2,tp=2,micro_batch=4", and parsed where it is
// written.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/words.h"
#include "trireme/mesh/mesh.h"

namespace trireme {

inline constexpr std::string_view kInterleavedAxis = "interleaved_parallel";

class MeshSpec {
 public:
  MeshSpec() = default;         // none: the axis "dp" over all ranks there are
  MeshSpec(const Mesh& whole);  // NOLINT: with the reserved axes, where it has them
  template <Text T>
  MeshSpec(const T& written) : MeshSpec(parse_mesh(written)) {}  // NOLINT: throws kInvalidArgument for what is no mesh

  bool empty() const { return whole_.user_axes().empty(); }  // none is given
  const Mesh& whole() const { return whole_; }
  const Mesh& ranks() const { return ranks_; }  // without the reserved axes
  int64_t micro_batches() const { return micro_batches_; }
  int64_t copies() const { return copies_; }

  friend bool operator==(const MeshSpec& a, const MeshSpec& b) { return a.whole_ == b.whole_; }

 private:
  Mesh whole_, ranks_;
  int64_t micro_batches_ = 1, copies_ = 1;
};

std::string to_string(const MeshSpec& spec);  // "" for none

}  // namespace trireme

#include "trireme/mesh/mesh_spec.h"

namespace trireme {

MeshSpec::MeshSpec(const Mesh& whole) : whole_(whole), micro_batches_(trireme::micro_batches(whole)) {
  std::vector<MeshAxis> axes = without_micro_batches(whole).user_axes();
  for (const MeshAxis& axis : axes) {
    if (axis.name == kInterleavedAxis) copies_ = axis.size;
  }
  std::erase_if(axes, [](const MeshAxis& axis) { return axis.name == kInterleavedAxis; });
  ranks_ = Mesh(std::move(axes));
}

std::string to_string(const MeshSpec& spec) {
  return to_string(spec.whole());
}

}  // namespace trireme

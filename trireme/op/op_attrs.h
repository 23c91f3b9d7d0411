// Attributes of ops that faster kernels read too. All other attribute structs stand in the op's own file.
#pragma once

#include "trireme/ir/attrs.h"

namespace trireme {

struct MatMulAttrs {
  bool transpose_a = false;
  bool transpose_b = false;
  static constexpr auto fields() {
    return std::tuple{field("transpose_a", &MatMulAttrs::transpose_a),
                      field("transpose_b", &MatMulAttrs::transpose_b)};
  }
};

}  // namespace trireme

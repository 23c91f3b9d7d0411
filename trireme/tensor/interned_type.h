// Interned types: a program has millions of values and hundreds of types, so that values refer to one of each.
#pragma once

#include "trireme/tensor/shape.h"

namespace trireme {

// The one of this process that is equal to it. It stays; any thread may ask.
const TensorType& interned(const TensorType& type);

}  // namespace trireme

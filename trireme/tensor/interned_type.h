// Interned types: a program has millions of values and a few hundred types, so values refer to one object for each
// type.
#pragma once

#include "trireme/tensor/shape.h"

namespace trireme {

// The one of this process that is equal to it. It stays; any thread may ask.
const TensorType& interned(const TensorType& type);

}  // namespace trireme

// docs/ops.md, written from the registry, so that it always agrees with the code.
#pragma once

#include <string>

namespace trireme {

// Every op in the registry's order: signature, mathematics, attributes with their defaults, the
// sharding rule of its first example, and why it has no gradient, rule, cost or kernel where it has
// none.
std::string ops_document();

}  // namespace trireme

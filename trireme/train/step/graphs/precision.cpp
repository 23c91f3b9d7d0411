#include "trireme/train/step/graphs/precision.h"

#include "trireme/base/error.h"

namespace trireme {

DType parse_compute_type(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const auto& [known, dtype] : kComputeTypes) {
    if (known == name) return dtype;
    names.emplace_back(known);
  }
  fail(ErrorKind::kInvalidArgument, "{} '{}'; layers compute in one of {}", where, name, quoted_list(names));
}

}  // namespace trireme

#include "trireme/tensor/field.h"

#include <fmt/core.h>

namespace trireme {
namespace {

bool has_sizes(const Shape& sizes, const FieldNeed& need) {
  if (need.any_shape) return true;
  if (sizes.rank() != need.sizes.rank()) return false;
  for (int dim = 0; dim < sizes.rank(); ++dim) {
    if (need.sizes[dim] != 0 && need.sizes[dim] != sizes[dim]) return false;
  }
  return true;
}

}  // namespace

std::string to_string(std::span<const FieldSpec> fields) {
  std::string out;
  for (const FieldSpec& field : fields) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", field.name, to_string(field.sample));
  }
  return out;
}

std::string to_string(std::span<const FieldNeed> needs) {
  std::string out;
  for (const FieldNeed& need : needs) {
    std::string sizes;
    for (const int64_t size : need.sizes) {
      if (!sizes.empty()) sizes += ",";
      sizes += size == 0 ? "?" : std::to_string(size);
    }
    out += fmt::format("{}{} {}[{}]", out.empty() ? "" : ", ", need.name, to_string(need.dtype),
                       need.any_shape ? "..." : sizes);
  }
  return out;
}

bool meets(std::span<const FieldSpec> fields, std::span<const FieldNeed> needs) {
  if (fields.size() != needs.size()) return false;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (needs.size() != 2 && fields[i].name != needs[i].name) return false;
    if (fields[i].sample.dtype != needs[i].dtype || !has_sizes(fields[i].sample.shape, needs[i])) return false;
  }
  return true;
}

}  // namespace trireme

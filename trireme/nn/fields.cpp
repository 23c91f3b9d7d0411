#include "trireme/nn/fields.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::nn {

void Fields::add(std::string name, const Tensor& tensor) {
  require(!contains(name), "two fields are named '{}'; give each a name of its own", name);
  fields_.emplace_back(std::move(name), tensor);
}

const Tensor& Fields::operator[](std::string_view name) const {
  const auto found = std::ranges::find(fields_, name, &Field::first);
  if (found != fields_.end()) return found->second;
  std::vector<std::string> names;
  for (const Field& field : fields_) names.push_back(field.first);
  fail(ErrorKind::kNotFound, "no field '{}'.{}", name, suggestion(name, names));
}

bool Fields::contains(std::string_view name) const {
  return std::ranges::find(fields_, name, &Field::first) != fields_.end();
}

std::string Fields::names() const {
  std::string out;
  for (const Field& field : fields_) out += (out.empty() ? "" : ", ") + field.first;
  return out;
}

}  // namespace trireme::nn

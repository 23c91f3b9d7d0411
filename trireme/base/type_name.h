// The name that a type has in its source, without the namespaces around it: "Sgd". Of types that are no templates'.
#pragma once

#include <string_view>

namespace trireme {

template <class T>
constexpr std::string_view type_name() {
  // "... [with T = trireme::Sgd; ...]" by g++, "... [T = trireme::Sgd]" by clang
  constexpr std::string_view kBefore = "T = ";
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.find(kBefore) + kBefore.size());
  name = name.substr(0, name.find_first_of(";]"));
  return name.substr(name.rfind(':') + 1);
}

}  // namespace trireme

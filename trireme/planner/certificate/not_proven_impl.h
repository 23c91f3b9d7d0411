// The error that a verifier throws for a certificate whose proof does not hold.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {

template <class... Args>
[[noreturn]] inline void not_proven(fmt::format_string<Args...> text, Args&&... args) {
  fail(ErrorKind::kInvalidArgument, "certificate: {}", fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace trireme

// What a failing worker writes to the launcher's pipe: the time, the error's kind and its text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

namespace trireme::launch {

struct Failure {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
  double at_s = now_s();  // ranks of one host share this clock, so failures have an order
};

std::string encode(const Failure& failure);
// Without a value for bytes that no worker of ours wrote.
std::optional<Failure> decode(std::string_view bytes);

}  // namespace trireme::launch

// A value that a message prints by its to_string, which is called only if the message is made:
//
//   require(type.shape.rank() == 2, "transpose: {} is no matrix", said(type));
//
// A check whose arguments are strings would build them each time it is evaluated.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "trireme/base/text_formatter.h"

namespace trireme {

template <class T>
struct Said {
  const T& value;
};

// The value must outlive what is returned.
template <class T>
Said<T> said(const T& value) {
  return {value};
}

// The same of what a function makes.
template <class Make>
struct SaidBy {
  Make make;
};
template <class Make>
SaidBy<Make> said_by(Make make) {
  return {std::move(make)};
}

}  // namespace trireme

template <class T>
struct fmt::formatter<trireme::Said<T>> : trireme::TextFormatter {
  fmt::appender format(const trireme::Said<T>& said, fmt::format_context& context) const {
    return put(to_string(said.value), context);
  }
};

template <class Make>
struct fmt::formatter<trireme::SaidBy<Make>> : trireme::TextFormatter {
  fmt::appender format(const trireme::SaidBy<Make>& said, fmt::format_context& context) const {
    return put(said.make(), context);
  }
};

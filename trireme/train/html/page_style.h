// What is the same in all HTML pages: the style sheet, and the script that shows values under the pointer.
#pragma once

#include <string_view>

namespace trireme {

extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace trireme

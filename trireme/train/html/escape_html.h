// Text as it may stand in HTML, in elements and in attributes.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// What means something to HTML is escaped, and what is no printable UTF-8 replaced: a generated text may hold anything.
std::string escape_html(std::string_view text);

}  // namespace trireme

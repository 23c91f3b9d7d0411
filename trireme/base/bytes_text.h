// Numbers of bytes for people: in binary units, with three digits, as messages, plans and reports say them.
#pragma once

#include <string>

namespace trireme {

std::string bytes_text(double bytes);  // "1023 B", "9.54 KiB", "41.0 MiB", "412 MiB", "13.5 GiB"

}  // namespace trireme

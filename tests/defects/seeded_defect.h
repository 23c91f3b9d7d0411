// What the patches beside this file put into copies of the library's sources: mistakes of one line, which defects_test
// switches on one at a time to see that the tests would notice them.
#pragma once

#include <string_view>

namespace trireme {

// Whether the defect of this name is switched on. The name says what is then wrong.
bool seeded_defect(std::string_view name);

}  // namespace trireme

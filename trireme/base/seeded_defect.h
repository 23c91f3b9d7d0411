// Seeded defects: mistakes of one line that tests switch on, one at a time, to see that the tests
// would notice them. They are in the sources so that they move with the code; in the library they
// are a constant and leave no trace. tests/defects compiles those sources again with
// TRIREME_SEEDED_DEFECTS and defines the function.
#pragma once

#include <string_view>

namespace trireme {

#ifdef TRIREME_SEEDED_DEFECTS
// Whether the defect of this name is switched on. The name says what is then wrong.
bool seeded_defect(std::string_view name);
#else
inline namespace without_seeded_defects {
constexpr bool seeded_defect(std::string_view) {
  return false;
}
}  // namespace without_seeded_defects
#endif

}  // namespace trireme

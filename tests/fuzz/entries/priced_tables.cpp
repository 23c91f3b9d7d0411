// Tables that plans before have compiled. Their first lines, of this program, and their checksum are made here, since
// nothing that is drawn at random has them.
#include "trireme/train/plan/parts/priced_tables.h"
#include "tests/fuzz/support.h"
#include "trireme/planner/certificate/certificate.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::accepts([&] { parse_priced_tables(text); });
  std::string lines = to_string(PricedTables());
  lines.resize(lines.rfind("end "));
  fuzz::round_trip(
      sealed_certificate(lines + text), [](std::string_view of) { return parse_priced_tables(of); },
      [](const std::optional<PricedTables>& tables) { return to_string(tables.value_or(PricedTables())); });
  return 0;
}

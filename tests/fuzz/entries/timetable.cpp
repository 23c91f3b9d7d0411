// A timetable; one that can run is also run in virtual time.
#include "trireme/parallel/timetable/timetable.h"
#include "tests/fuzz/support.h"
#include "trireme/parallel/timetable/timetable_time.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::round_trip(
      text, [](std::string_view of) { return parse_timetable(of); },
      [](const Timetable& timetable) { return to_string(timetable); });
  fuzz::accepts([&] {
    const TimetableTime time = time_of(parse_timetable(text));
    fuzz::demand(time.bubble >= 0 && time.makespan >= time.bubble, "a bubble longer than the step");
  });
  return 0;
}

// A run's log of metrics.
#include "trireme/train/report/run_log.h"
#include "tests/fuzz/support.h"
#include "trireme/base/memory_file_for_tests.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile file;
  const auto parse = [&](std::string_view text) {
    file.write(text);
    return read_run_log(file.path());
  };
  fuzz::round_trip(fuzz::text_of(data, size), parse, [](const std::vector<RunRecord>& records) {
    std::string lines;
    for (const RunRecord& record : records) lines += json_line(record);
    return lines;
  });
  return 0;
}

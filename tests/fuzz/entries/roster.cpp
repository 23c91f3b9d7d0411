// The list of what all ranks have said, as rank 0 publishes it.
#include "trireme/comm/engine/roster.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::round_trip(fuzz::text_of(data, size), comm::decode_list, [](const std::vector<std::string>& values) {
    std::string list;
    for (const std::string& value : values) list += fmt::format("{:08x}", value.size()) + value;
    return list;
  });
  return 0;
}

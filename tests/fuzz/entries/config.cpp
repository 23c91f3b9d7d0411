// A job's configuration. After a line of '#set' each line is an override, as of --set.
#include "trireme/train/job/config.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto [text, rest] = fuzz::split(fuzz::text_of(data, size), "\n#set\n");
  std::vector<std::string> overrides;
  while (!rest.empty()) {
    const auto [line, after] = fuzz::split(rest, "\n");
    overrides.emplace_back(line);
    rest = after;
  }
  std::string printed;
  if (!fuzz::accepts([&] { printed = to_toml(parse_config(text, "job.toml", overrides)); })) return 0;
  std::string again;
  fuzz::demand(fuzz::accepts([&] { again = to_toml(parse_config(printed, "printed.toml")); }),
               "what was printed is refused", printed);
  fuzz::demand(again == printed, "what was printed reads back as something else", printed, again);
  return 0;
}

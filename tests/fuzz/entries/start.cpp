// The environment by which a process finds out which rank it is: NAME=VALUE a line, and after a line of '#file' the
// rank table.
#include "trireme/launch/start/start.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto [text, file] = fuzz::split(fuzz::text_of(data, size), "\n#file\n");
  launch::Environment environment;
  while (!text.empty()) {
    const auto [line, rest] = fuzz::split(text, "\n");
    const auto [name, value] = fuzz::split(line, "=");
    if (!value.empty()) environment.emplace(name, value);
    text = rest;
  }
  fuzz::accepts([&, table = file] {
    const launch::RankInfo info =
        launch::describe_start(environment, [&](const std::string&) { return std::string(table); });
    fuzz::demand(info.rank >= 0 && info.rank < info.world, "a rank outside its world");
    fuzz::demand(info.local_rank >= 0 && info.local_world >= 1, "a local rank that cannot be");
  });
  return 0;
}

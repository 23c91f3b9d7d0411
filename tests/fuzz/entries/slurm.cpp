// SLURM's lists: of hosts, and of the ranks on each.
#include "trireme/launch/start/slurm.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::accepts([&] {
    const launch::HostList hosts(text);
    hosts[0];
    hosts[hosts.size() / 2];
    hosts[hosts.size() - 1];
  });
  fuzz::accepts([&] { launch::expand_tasks(text); });
  return 0;
}

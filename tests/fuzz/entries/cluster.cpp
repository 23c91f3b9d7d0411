// The scheduler's knowledge of a job, under reports of nodes that know the secret and say anything: each report with
// its length in two bytes before it, and before that a byte that says what else happens.
#include "trireme/launch/cluster/cluster.h"
#include "tests/fuzz/support.h"
#include "trireme/launch/cluster/message.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  launch::Cluster cluster({.world = 4}, 0);
  std::string_view rest = fuzz::text_of(data, size);
  for (int64_t now_ms = 0; rest.size() >= 3;) {
    const auto what = static_cast<uint8_t>(rest[0]);
    const size_t length = static_cast<uint8_t>(rest[1]) | size_t{static_cast<uint8_t>(rest[2])} << 8;
    const std::string_view bytes = rest.substr(3, length);
    rest.remove_prefix(3 + bytes.size());
    now_ms += (what >> 2) * 250;
    fuzz::accepts([&] {
      const launch::NodeReport report = launch::decode_report(bytes);
      launch::decode_view(launch::encode(cluster.report(report, now_ms)));
      if ((what & 1) != 0) cluster.disconnected(report.node_id, report.instance, now_ms);
    });
    if ((what & 2) != 0) cluster.tick(now_ms);
    cluster.take_events();
    fuzz::demand(cluster.registered() >= 0 && cluster.registered() <= 4, "more ranks than the job has");
  }
  return 0;
}

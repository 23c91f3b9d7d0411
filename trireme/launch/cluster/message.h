// Reports and views as bytes: one field after the other, numbers little-endian, texts preceded by their length. They
// are read only after the proof of the job's secret (handshake.h), and nothing in them is trusted even then: a length
// beyond the bytes, a value out of its range or bytes left over are kCorrupt errors.
#pragma once

#include <string>
#include <string_view>

#include "trireme/launch/cluster/cluster.h"

namespace trireme::launch {

inline constexpr size_t kMaxMessage = 4096;  // bytes of a message with its proof; longer texts are cut before

std::string encode(const NodeReport& report);
std::string encode(const ClusterView& view);
NodeReport decode_report(std::string_view bytes);
ClusterView decode_view(std::string_view bytes);

}  // namespace trireme::launch

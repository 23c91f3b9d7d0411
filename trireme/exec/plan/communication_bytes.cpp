#include "trireme/exec/plan/communication_bytes.h"

#include <algorithm>
#include <utility>

#include "trireme/exec/memory/memory_plan.h"
#include "trireme/op/exchange.h"
#include "trireme/op/packing.h"
#include "trireme/op/rank_groups.h"

namespace trireme {
namespace {

int64_t all_bytes(std::span<const TensorType> types) {
  int64_t bytes = 0;
  for (const TensorType& type : types) bytes += type.bytes();
  return bytes;
}

int64_t bytes_of(const Exchange::Part& part, std::span<const TensorType> types) {
  return part.box.elements() * size_of(types[part.tensor].dtype);
}

int64_t exchange_bytes(const OpDef& op, const TypeArgs& types, int64_t place) {
  int64_t bytes = 0;
  for (const Exchange::Part& part : op.collective->exchange(types, place).sends) bytes += bytes_of(part, types.in);
  return bytes;
}

int64_t exchange_scratch(const OpDef& op, const TypeArgs& types) {
  int64_t most = 0;
  for (int64_t place = 0; place < groups_of(op, types.attrs).size; ++place) {
    const Exchange exchange = op.collective->exchange(types, place);
    int64_t bytes = 0;
    for (const Exchange::Part& part : exchange.sends) bytes += align_buffer(bytes_of(part, types.in));
    for (const Exchange::Part& part : exchange.receipts) bytes += align_buffer(bytes_of(part, types.out));
    for (const Exchange::Part& part : exchange.kept_from) bytes += align_buffer(bytes_of(part, types.in));
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

int64_t collective_scratch(const OpDef& op, const TypeArgs& types) {
  if (op.collective->work == GroupWork::kExchange) return exchange_scratch(op, types);
  const auto [sent, come] = packing_of(op, types);
  return sent > 0 && come > 0 ? align_buffer(sent) + align_buffer(come) : sent + come;
}

int64_t collective_bytes(const OpDef& op, const TypeArgs& types, std::span<const int64_t> offsets, int64_t place) {
  const GroupWork work = op.collective->work;
  const int64_t p = groups_of(op, types.attrs).size;
  int64_t sent = 0;
  if (work == GroupWork::kExchange) {
    if (place != kAnyPlace) return exchange_bytes(op, types, place);
    for (int64_t each = 0; each < p; ++each) sent = std::max(sent, exchange_bytes(op, types, each));
    return sent;
  }
  if (work == GroupWork::kAllReduce) {
    std::vector<Run> runs;
    for (size_t i = 0; i < types.out.size(); ++i) {
      runs.push_back({offsets[i], types.out[i].dtype, types.out[i].elements()});
    }
    for (const Run& run : joined(std::move(runs))) sent += 2 * (run.end() - run.offset) * (p - 1) / p;
    return sent;
  }
  const int64_t before = all_bytes(types.in);
  if (work == GroupWork::kRingShift) return before;
  if (work == GroupWork::kBroadcast) {
    const bool sends = place == kAnyPlace || place == op.collective->call(types.attrs).root;
    return sends ? before * (p - 1) : 0;
  }
  return std::max(before, all_bytes(types.out)) * (p - 1) / p;
}

std::vector<Run> joined(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.offset < b.offset; });
  std::vector<Run> out;
  for (const Run& run : runs) {
    if (!out.empty() && out.back().dtype == run.dtype && run.offset - out.back().end() < kBufferAlignment) {
      out.back().elements = (run.end() - out.back().offset) / size_of(run.dtype);
    } else {
      out.push_back(run);
    }
  }
  return out;
}

int64_t staging_bytes(std::span<const int64_t> buffers) {
  int64_t bytes = 0;
  for (const int64_t each : buffers) bytes += align_buffer(each) + kBufferAlignment;
  return bytes;
}

}  // namespace trireme

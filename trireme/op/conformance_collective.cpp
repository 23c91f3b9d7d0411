// What must be true of ops that ranks do together: in exchanges, that what is sent is what is awaited (conformance.h).
#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/conformance.h"

namespace trireme::conformance {
namespace {

using Findings = std::vector<std::string>;
using Part = Exchange::Part;

// The boxes that go from one place to another, in order: of what is sent, or of what is awaited.
std::vector<Shape> boxes_between(const std::vector<Part>& parts, int64_t peer) {
  std::vector<Shape> out;
  for (const Part& part : parts) {
    if (part.peer == peer) out.push_back(part.box.size);
  }
  return out;
}

bool is_inside(const Part& part, std::span<const TensorType> types) {
  if (part.tensor >= types.size() || part.box.size.rank() != types[part.tensor].shape.rank()) return false;
  for (int dim = 0; dim < part.box.size.rank(); ++dim) {
    const int64_t start = part.box.start[dim];
    if (start < 0 || part.box.size[dim] < 1 || start + part.box.size[dim] > types[part.tensor].shape[dim]) return false;
  }
  return true;
}

// Parts lie in operands and results, stand in the order of their peers, and what is sent is what is awaited.
void check_exchange(const OpDef& op, const TypeArgs& types, Findings& out) {
  const int64_t size = op.collective->groups(types.attrs).size;
  std::vector<Exchange> all;
  for (int64_t place = 0; place < size; ++place) all.push_back(op.collective->exchange(types, place));
  for (int64_t place = 0; place < size; ++place) {
    const Exchange& mine = all[static_cast<size_t>(place)];
    const auto check_parts = [&](const std::vector<Part>& parts, std::span<const TensorType> of, bool own) {
      for (const Part& part : parts) {
        if (!is_inside(part, of)) out.push_back(fmt::format("place {} has a box outside its tensor", place));
        if ((part.peer == place) != own)
          out.push_back(fmt::format("place {} exchanges with {} as if with others", place, part.peer));
      }
      if (!std::ranges::is_sorted(parts, {}, &Part::peer))
        out.push_back(fmt::format("parts of place {} are out of order", place));
    };
    check_parts(mine.sends, types.in, false);
    check_parts(mine.receipts, types.out, false);
    check_parts(mine.kept_from, types.in, true);
    check_parts(mine.kept_to, types.out, true);
    if (boxes_between(mine.kept_from, place) != boxes_between(mine.kept_to, place)) {
      out.push_back(fmt::format("what place {} keeps has another shape where it is put", place));
    }
    for (int64_t peer = 0; peer < size; ++peer) {
      if (peer == place) continue;
      if (boxes_between(mine.sends, peer) == boxes_between(all[static_cast<size_t>(peer)].receipts, place)) continue;
      out.push_back(fmt::format("place {} sends other boxes to {} than that awaits", place, peer));
    }
  }
}

// The operand with its pieces sent and those of all joined is the result.
void check_call(const OpDef& op, const TypeArgs& types, Findings& out) {
  const GroupCall call = op.collective->call(types.attrs);
  const int64_t size = op.collective->groups(types.attrs).size;
  if (call.root < 0 || call.root >= size) out.push_back(fmt::format("its root is {} in groups of {}", call.root, size));
  for (size_t i = 0; i < types.in.size(); ++i) {
    TensorType made = types.in[i];
    if (call.parted >= 0) made.shape[call.parted] /= size;
    if (call.joined >= 0) made.shape[call.joined] *= size;
    if (i < types.out.size() && made == types.out[i]) continue;
    out.push_back(fmt::format("its pieces make {} of {}", to_string(made), to_string(types.in[i])));
  }
}

}  // namespace

std::vector<std::string> check_collective(const OpDef& op, uint64_t) {
  if (!op.collective) return {};
  const Collective& does = *op.collective;
  const bool exchanges = does.work == GroupWork::kExchange;
  if (does.groups == nullptr || (does.call == nullptr) != exchanges || (does.exchange == nullptr) == exchanges) {
    return {fmt::format("{}: a collective has groups, and a call, or, where its work is an exchange, that", op.name)};
  }
  Findings out;
  for (const Example& example : op.examples()) {
    Findings found;
    const std::vector<TensorType> results = results_of(op, example);
    const TypeArgs types{example.in, results, example.attrs};
    if (exchanges) {
      check_exchange(op, types, found);
    } else {
      check_call(op, types, found);
    }
    for (const std::string& finding : found) out.push_back(describe(op, example) + ": " + finding);
  }
  return out;
}

}  // namespace trireme::conformance

#include "trireme/planner/certificate/certified_passes.h"

#include <algorithm>

#include "trireme/planner/certificate/exact_numbers_impl.h"

namespace trireme {
namespace {

// What is kept elsewhere moves beside it: an eighth of that is waited for, or as much as it takes longer.
int64_t with_moves_beside(int64_t pass, int64_t moves) {
  return exact_sum(pass, std::max(moves / 8, moves - pass));
}

}  // namespace

int64_t certified_forward_of(const CertifiedPart& part) {
  return with_moves_beside(exact_sum(part.forward, part.moving_forward), part.leaving);
}

int64_t certified_backward_of(const CertifiedPart& part) {
  return with_moves_beside(exact_sum(exact_sum(part.again, part.input_grad), part.moving_backward), part.returning);
}

int64_t certified_pass_of(const CertifiedPart& part) {
  return exact_sum(exact_sum(certified_forward_of(part), certified_backward_of(part)), part.weight_grad);
}

int64_t certified_moves_of(const CertifiedPart& part) {
  return std::max({part.coming, part.going, part.updating});
}

int64_t certified_once_of(const CertifiedPart& part) {
  return exact_sum(exact_sum(part.update, part.sync), certified_moves_of(part));
}

CertifiedTable certified_without_tied(CertifiedTable table) {
  if (table.parts.empty()) return table;
  CertifiedPart &first = table.parts.front(), &last = table.parts.back();
  first.update -= first.tied_adding;
  last.moving_forward -= last.tied_forward;
  last.moving_backward -= last.tied_backward;
  return table;
}

std::optional<CertifiedTable> certified_of_one_stage(const CertifiedWay& way, const CertifiedTable& table) {
  if (way.pp > 1 || table.parts.empty()) return std::nullopt;
  CertifiedTable out = certified_without_tied(table);
  CertifiedPart &first = out.parts.front(), &last = out.parts.back();
  const int64_t before = certified_backward_of(first);
  first.moving_backward = exact_sum(first.moving_backward, first.tied);
  first.sync = exact_sum(first.sync, before - certified_backward_of(first));
  int64_t needless = first.tied_sums;
  for (CertifiedPart* const part : {&last, &first}) {
    const int64_t less = std::min(needless, part->gradients);
    part->gradients -= less;
    needless -= less;
  }
  return out;
}

}  // namespace trireme

#include "trireme/train/plan/parts/certified_tables.h"

#include <array>
#include <cstdint>

namespace trireme {
namespace {

// The figures of a part, here and in a certificate.
struct FieldOfPart {
  int64_t PartPrice::*price;
  int64_t CertifiedPart::*certified;
};
constexpr std::array kFieldsOfPart{
    FieldOfPart{&PartPrice::forward, &CertifiedPart::forward},
    FieldOfPart{&PartPrice::input_grad, &CertifiedPart::input_grad},
    FieldOfPart{&PartPrice::weight_grad, &CertifiedPart::weight_grad},
    FieldOfPart{&PartPrice::again, &CertifiedPart::again},
    FieldOfPart{&PartPrice::moving_forward, &CertifiedPart::moving_forward},
    FieldOfPart{&PartPrice::moving_backward, &CertifiedPart::moving_backward},
    FieldOfPart{&PartPrice::leaving, &CertifiedPart::leaving},
    FieldOfPart{&PartPrice::returning, &CertifiedPart::returning},
    FieldOfPart{&PartPrice::update, &CertifiedPart::update},
    FieldOfPart{&PartPrice::sync, &CertifiedPart::sync},
    FieldOfPart{&PartPrice::persistent, &CertifiedPart::persistent},
    FieldOfPart{&PartPrice::gradients, &CertifiedPart::gradients},
    FieldOfPart{&PartPrice::held, &CertifiedPart::held},
    FieldOfPart{&PartPrice::kept, &CertifiedPart::kept},
    FieldOfPart{&PartPrice::waiting, &CertifiedPart::waiting},
    FieldOfPart{&PartPrice::work, &CertifiedPart::work},
    FieldOfPart{&PartPrice::coming, &CertifiedPart::coming},
    FieldOfPart{&PartPrice::going, &CertifiedPart::going},
    FieldOfPart{&PartPrice::updating, &CertifiedPart::updating},
    FieldOfPart{&PartPrice::host, &CertifiedPart::host},
    FieldOfPart{&PartPrice::disk, &CertifiedPart::disk},
    FieldOfPart{&PartPrice::kept_host, &CertifiedPart::kept_host},
    FieldOfPart{&PartPrice::kept_disk, &CertifiedPart::kept_disk},
    FieldOfPart{&PartPrice::adding, &CertifiedPart::adding},
    FieldOfPart{&PartPrice::sums, &CertifiedPart::sums},
    FieldOfPart{&PartPrice::tied, &CertifiedPart::tied},
    FieldOfPart{&PartPrice::tied_sums, &CertifiedPart::tied_sums},
    FieldOfPart{&PartPrice::tied_adding, &CertifiedPart::tied_adding},
    FieldOfPart{&PartPrice::tied_forward, &CertifiedPart::tied_forward},
    FieldOfPart{&PartPrice::tied_backward, &CertifiedPart::tied_backward},
};

CertifiedPart certified_part(const PartPrice& part) {
  CertifiedPart out;
  for (const auto& [price, certified] : kFieldsOfPart) out.*certified = part.*price;
  return out;
}

}  // namespace

CertifiedCut certified_cut(const InnerWay& way) {
  return {.tp = way.tp,
          .cp = way.cp,
          .ep = way.ep,
          .dp = way.dp,
          .sp = way.sp,
          .vocabulary = way.vocabulary,
          .zero = way.zero,
          .rows = way.rows,
          .recompute = way.recompute,
          .kept_slices = way.kept_slices,
          .keep = way.keep,
          .place = {.state = way.place.state, .update = way.place.update}};
}

InnerWay inner_way(const CertifiedCut& cut) {
  return {.tp = cut.tp,
          .cp = cut.cp,
          .ep = cut.ep,
          .dp = cut.dp,
          .sp = cut.sp,
          .vocabulary = cut.vocabulary,
          .zero = cut.zero,
          .rows = cut.rows,
          .recompute = cut.recompute,
          .kept_slices = cut.kept_slices,
          .keep = cut.keep,
          .place = {.state = cut.place.state, .update = cut.place.update}};
}

PartPrice part_price(const CertifiedPart& part) {
  PartPrice out;
  for (const auto& [price, certified] : kFieldsOfPart) out.*price = part.*certified;
  return out;
}

CertifiedTable certified_prices(const InnerWay& way, const std::optional<PartPrices>& prices) {
  CertifiedTable out{.cut = certified_cut(way), .is_refused = !prices};
  if (!prices) return out;
  out.crossing = prices->crossing;
  out.is_joined = prices->is_joined;
  for (const PartPrice& part : prices->parts) out.parts.push_back(certified_part(part));
  return out;
}

}  // namespace trireme

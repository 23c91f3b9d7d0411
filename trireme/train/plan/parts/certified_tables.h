// Prices of parts in the form that a certificate has.
#pragma once

#include <optional>
#include <vector>

#include "trireme/planner/certificate/certificate.h"
#include "trireme/train/plan/parts/inner_way.h"

namespace trireme {

// All that a search asked for.
struct CertifiedTables {
  std::vector<CertifiedTable> alone, prices;  // each in ascending order of cuts
};

CertifiedCut certified_cut(const InnerWay& way);
InnerWay inner_way(const CertifiedCut& cut);
PartPrice part_price(const CertifiedPart& part);
CertifiedTable certified_prices(const InnerWay& way, const std::optional<PartPrices>& prices);

}  // namespace trireme

// What a part of a certificate's table takes: its passes, and what it does once a step.
#pragma once

#include <optional>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

// Of a micro-batch, with what is kept elsewhere, which moves beside it: the forward pass; input gradients, for which
// the stage before waits; all of it.
int64_t certified_forward_of(const CertifiedPart& part);
int64_t certified_backward_of(const CertifiedPart& part);
int64_t certified_pass_of(const CertifiedPart& part);

// Once a step: moves both ways and updates on the host, at a time; and with these all that is done once.
int64_t certified_moves_of(const CertifiedPart& part);
int64_t certified_once_of(const CertifiedPart& part);

// The table of a way whose one stage has all parts: it takes `tied` for each micro-batch, as far as moves of what is
// kept do not hide it, where parts take it once, and does without `tied_sums`, `tied_adding`, `tied_forward` and
// `tied_backward`. Nothing for ways of several stages.
std::optional<CertifiedTable> certified_of_one_stage(const CertifiedWay& way, const CertifiedTable& table);
// Only without the last three, which take time.
CertifiedTable certified_without_tied(CertifiedTable table);

}  // namespace trireme

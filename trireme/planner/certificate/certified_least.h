// What the parts of the model take at least by a cut, from the certificate's table of one data parallel rank: the
// verifier's own rule for ways whose prices nobody has made.
#pragma once

#include <optional>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

// Its cut: of as many rows, or of the most rows that a way has; or with all kept whole, and nothing computed again.
CertifiedCut certified_alone(CertifiedCut cut);
CertifiedCut certified_most_rows(CertifiedCut cut);
CertifiedCut certified_all_kept(CertifiedCut cut);

// Of tp (and sp) alone, with the most rows and all kept, where cp, ep or the vocabulary cut as
// well.
std::optional<CertifiedCut> certified_by_tp(CertifiedCut cut);
// What the passes of blocks take at least by the table of that: moving over tp as much of each position, computing no
// less where no experts are cut.
CertifiedTable certified_least_by_tp(const CertifiedTable& of_tp, const CertifiedCut& cut);

// Of eight data parallel ranks with the state on the device, where the cut has a multiple of them: they exchange no
// more.
std::optional<CertifiedCut> certified_few_ranks(CertifiedCut cut);
// `table` with at least what `few` moves.
CertifiedTable with_moved(CertifiedTable table, const CertifiedTable& few);

// `alone`: of a cut that is the same in tp, cp, ep and sp, and has as many rows or more. Without a crossing.
CertifiedTable certified_least(const CertifiedTable& alone, const CertifiedCut& cut, const CertifiedModel& model);

// What all crews with their state elsewhere move at least once a step: one way, with both ways at a time.
int64_t certified_moves_ps(const CertifiedCut& cut, const CertifiedModel& model);
// Throws kInvalidArgument where the parts of a whole model, of these runs of blocks, move for less.
void check_moves(const CertifiedTable& table, const std::vector<CertifiedRun>& runs, const CertifiedModel& model);

// Throws kInvalidArgument where a figure of `part` is less than that of `least`.
void check_no_less(const CertifiedTable& table, const CertifiedTable& least);

}  // namespace trireme

// The least that the parts of a model take under a cut, from the certificate's table for one data parallel rank: the
// verifier's own rule for ways without a table of their own.
#pragma once

#include <optional>
#include <vector>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

// Its cut: of as many rows, or of the most rows that a way has; or with all kept whole, and nothing computed again.
CertifiedCut certified_alone(CertifiedCut cut);
CertifiedCut certified_most_rows(CertifiedCut cut);
CertifiedCut certified_all_kept(CertifiedCut cut);

// With its vocabulary whole; and what a table says of blocks alone, which are the same however that is cut: passes, and
// messages between crews.
CertifiedCut certified_whole_vocabulary(CertifiedCut cut);
CertifiedTable certified_blocks_of(const CertifiedTable& table, const CertifiedCut& cut);

// The cut by tp (and sp) alone, with the most rows and everything kept, if cp, ep or the vocabulary cut as well.
std::optional<CertifiedCut> certified_by_tp(CertifiedCut cut);
// The same of eight ranks of tp alone, if the cut's tp is a larger multiple of eight.
std::optional<CertifiedCut> certified_by_fewer_tp(CertifiedCut cut);
// The same of tp and ep, of a cut with ep that cp or the vocabulary cut as well.
std::optional<CertifiedCut> certified_by_tp_and_ep(CertifiedCut cut);
// The same of tp and 2, 4, 8 or 16 ranks of ep, of a cut whose ep is a larger multiple; and of tp, ep and half of a cp
// that is a multiple of 4.
std::vector<CertifiedCut> certified_by_fewer_ep(const CertifiedCut& cut);
std::optional<CertifiedCut> certified_by_half_cp(const CertifiedCut& cut);
// The least that the passes of blocks take, by the table of one of these: they move as much for each position, among
// however many ranks of tp, and compute no less if experts lie in the same way.
CertifiedTable certified_least_by_fewer(const CertifiedTable& fewer, const CertifiedCut& cut);

// The cut with the most rows that keeps the same elsewhere, without ep and with the vocabulary whole, if the cut keeps
// it there and has either; and `table` with at least what its blocks move of it.
std::optional<CertifiedCut> certified_kept_without_ep(CertifiedCut cut);
CertifiedTable with_kept_moves(CertifiedTable table, const CertifiedTable& known);

// The cut with eight data parallel ranks and with state and updates on the device, if the cut has a multiple of them:
// they exchange no more.
std::optional<CertifiedCut> certified_few_ranks(CertifiedCut cut);
// `table` with at least what `few` moves.
CertifiedTable with_moved(CertifiedTable table, const CertifiedTable& few);

// The cut without slices, with one row, its vocabulary whole and everything kept, if the cut has slices.
std::optional<CertifiedCut> certified_without_slices(CertifiedCut cut);
// And of this the cut with eight data parallel ranks and without cp and sp, if it has a multiple of eight: these ranks
// sum the gradients of as many weights, and no others.
std::optional<CertifiedCut> certified_fewest_sums(CertifiedCut without);
// The least that blocks exchange whose state is in slices (zero), on top of `alone`, the table of one data parallel
// rank. It follows from the sums of gradients without slices, which are the difference between `summed` and `unsummed`,
// the latter for one data parallel rank: with zero 1 all of them once, with 2 and 3 15 of 32 of them for each
// micro-batch.
struct CertifiedSums {
  const CertifiedTable &alone, &summed, &unsummed;
};
CertifiedTable with_exchanged(CertifiedTable table, const CertifiedSums& by);

// `alone`: of a cut that is the same in tp, cp, ep and sp, and has as many rows or more. Messages between crews take
// no less among fewer rows.
CertifiedTable certified_least(const CertifiedTable& alone, const CertifiedCut& cut, const CertifiedModel& model);

// What all crews with their state elsewhere move, or update on the host, at least once a step: one way, as all go at a
// time.
int64_t certified_moves_ps(const CertifiedCut& cut, const CertifiedModel& model);
// Throws kInvalidArgument where the parts of a whole model, of these runs of blocks, move for less.
void check_moves(const CertifiedTable& table, const std::vector<CertifiedRun>& runs, const CertifiedModel& model);

// Throws kInvalidArgument where a figure of `part` is less than that of `least`.
void check_no_less(const CertifiedTable& table, const CertifiedTable& least);

}  // namespace trireme

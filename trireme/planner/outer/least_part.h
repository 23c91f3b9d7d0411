// The least that a part takes, by the table for one data parallel rank, so that ways can be ruled out before their own
// tables are made. It holds because every table is raised to it where it would be lower
// (train/plan/parts/part_prices.h).
#pragma once

#include <compare>
#include <vector>

#include "trireme/planner/outer/stage_problem.h"

namespace trireme {

// The way in question, compared with the one whose table is known.
struct LeastPartOf {
  int64_t rows = 1, rows_of_table = 1;  // of a micro-batch; the table's are no fewer
  bool is_own = true;                   // the table's way differs in dp and zero alone
  int64_t ranks = 1;                    // of a stage
  int64_t zero = 0;
  bool state_elsewhere = false, update_elsewhere = false;  // than on the device
  int64_t parameter_bytes = 0, state_bytes = 0;            // of the whole model
  int64_t weight_bytes = 0;                                // of parameters, in the type that the device computes in

  // The part of this on which times depend: equal for ways that differ only in bytes.
  LeastPartOf for_times() const;
  friend auto operator<=>(const LeastPartOf&, const LeastPartOf&) = default;
};

// The bounds. With fewer rows, each row takes no less: this holds for passes, except for adding gradients, which takes
// as long whatever the rows, and for the bytes of a micro-batch in flight. Persistent bytes may be sliced (state with
// zero 1 and 2, everything with zero 3), and state may lie elsewhere. By the way's own table, and without slices,
// everything else is no less either; if state lies elsewhere, this holds for times, except those of updates on the
// host. With these, parameters are on the device while a step lasts, in a narrower type, unless only the state is in
// slices (zero 1 and 2). Sums of gradients are whole with zero 1 as well, whatever the rows and wherever the state
// lies; and so are those that one stage does without (tied_sums), which are no more than here. Updates are those of one
// stage (tied_adding).
PartPrice least_part(const PartPrice& alone, const LeastPartOf& of);

// By how many times as many ranks of tp and cp a block is cut, and whether by more of ep.
struct CutMore {
  int64_t tp = 1, cp = 1;
  bool more_ep = false;
};
// The least that a block takes that is cut more, given what `uncut` takes. Collectives move as much for each position,
// among however many ranks of tp. If experts lie as before, computing is no faster in so many pieces, and gradients are
// added whole, or the pieces of tp. Passes only.
PartPrice least_of_cut_part(const PartPrice& uncut, const CutMore& by);

// Raises what a block moves of what it keeps elsewhere to what it moves by `known`, the same of a way without ep: it
// keeps as much, wherever experts lie.
struct KeptOf {
  const PartPrice& known;
  int64_t rows = 1, rows_of_table = 1;
};
void raise_kept_moves(PartPrice& part, const KeptOf& of);

// The least that a block exchanges whose state is in slices, by the tables of the same ranks without slices: `summed`,
// and `unsummed` for one data parallel rank. Their difference is the sums of gradients that all ranks get. With zero 1
// it is the least that is exchanged before the update. With 2 and 3 a scattered sum, half of it, is exchanged for each
// micro-batch, on top of what `alone` moves, the way's own table for one data parallel rank.
struct ExchangedBy {
  const PartPrice &alone, &summed, &unsummed;
  int64_t zero = 1;
};
void raise_exchanged(PartPrice& part, const ExchangedBy& by);

// Lowers tied_adding, tied_forward and tied_backward, so that what is left without them (take_off_tied) is no less than
// this, which the parts are not below.
void limit_tied(std::vector<PartPrice>& parts, const std::vector<PartPrice>& least);

// Raises figures to these where they are lower.
void raise_part(PartPrice& part, const PartPrice& least);
// The same for passes alone, and for collectives alone.
void raise_passes(PartPrice& part, const PartPrice& least);
void raise_moved(PartPrice& part, const PartPrice& least);

}  // namespace trireme

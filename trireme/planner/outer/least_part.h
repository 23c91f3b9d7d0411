// What a part takes at least, by the table of one data parallel rank: so that ways can be ruled out whose own tables
// nobody has made. It holds because no table is made that has less (train/plan/part_prices.h).
#pragma once

#include "trireme/planner/outer/stage_problem.h"

namespace trireme {

// The way that is asked for, beside the table that is known.
struct LeastPartOf {
  int64_t rows = 1, rows_of_table = 1;  // of a micro-batch; the table's are no fewer
  bool is_own = true;                   // the table's way differs in dp and zero alone
  int64_t ranks = 1;                    // of a stage
  int64_t zero = 0;
  bool state_elsewhere = false;                  // than on the device
  int64_t parameter_bytes = 0, state_bytes = 0;  // of the whole model
};

// A row takes no less among fewer rows: passes, and bytes of a micro-batch in flight. Persistent bytes may be sliced:
// state with zero 1 and 2, all with zero 3; and state may lie elsewhere. By its own table, and without slices, all else
// is no less either; where state lies elsewhere that is so of times.
PartPrice least_part(const PartPrice& alone, const LeastPartOf& of);

// What a block of so much, on the ranks of tp alone, takes at least where cp and ep cut it as well: collectives over tp
// move as much of each position, and of a block without experts over ep all that is computed is no faster in cp pieces.
// Passes alone.
PartPrice least_of_cut_part(const PartPrice& of_tp, int64_t cp, int64_t ep);

// To these where they are less.
void raise_part(PartPrice& part, const PartPrice& least);
// The same of passes, and of collectives, alone.
void raise_passes(PartPrice& part, const PartPrice& least);
void raise_moved(PartPrice& part, const PartPrice& least);

}  // namespace trireme

// The order in which variables are eliminated. It decides how large the intermediate tables become.
#pragma once

#include <vector>

namespace trireme::solver {

struct Order {
  std::vector<int> position;  // of each variable; those that are kept come last, in the order of `keep`
  int eliminated = 0;         // their number: positions from here on are kept
  int width = 0;              // most variables that one elimination leaves a table over
};

// Min-fill: next is the variable whose neighbours need the fewest new pairs to be neighbours of each other; among those
// the one with the smallest table (Kjaerulff, 1990). `scopes`: variables that stand in one table.
Order min_fill(const std::vector<int>& sizes, const std::vector<std::vector<int>>& scopes,
               const std::vector<int>& keep);

}  // namespace trireme::solver

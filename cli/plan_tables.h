// The file of `trireme plan --tables`: what the exact search has compiled, for plans that come after.
#pragma once

#include <string>

#include "trireme/train/plan/parts/priced_tables.h"

namespace trireme::cli {

class PlanTables {
 public:
  // Of what is in the file, where there is one. "": nothing is read or written. Throws kInvalidArgument for a file that
  // is none of tables.
  explicit PlanTables(std::string file);

  PricedTables& known() { return known_; }
  void write();  // where tables have come since the file was read or written; says so, and where there are none

 private:
  std::string file_;
  PricedTables known_;
  size_t written_ = 0;  // tables
  bool says_none_ = false;
};

}  // namespace trireme::cli

#include "cli/plan_tables.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme::cli {
namespace {

size_t count_of(const PricedTables& tables) {
  size_t out = 0;
  for (const auto& [key, of_key] : tables.by_key) out += of_key.size();
  return out;
}

std::optional<PricedTables> read(const std::string& file) {
  try {
    return parse_priced_tables(read_file(file));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInvalidArgument) throw;
    fail(error.kind(), "plan: --tables '{}': {}; name another file, or remove it", file, error.what());
  }
}

}  // namespace

PlanTables::PlanTables(std::string file) : file_(std::move(file)) {
  if (file_.empty() || !is_file(file_)) return;
  if (std::optional<PricedTables> found = read(file_)) {
    known_ = std::move(*found);
    written_ = count_of(known_);
  } else {
    std::printf("none of the tables in '%s' is used: another build of trireme compiled them\n", file_.c_str());
  }
}

void PlanTables::write() {
  const size_t count = count_of(known_);
  if (file_.empty() || (count == written_ && count > 0)) return;
  if (count == 0) {
    if (!std::exchange(says_none_, true))
      std::printf("no tables are kept: the exact search did not run, or its micro-batches depend on each other\n");
    return;
  }
  atomic_write(file_, to_string(known_));
  written_ = count;
  std::printf("wrote %s with %zu tables\n", file_.c_str(), count);
}

}  // namespace trireme::cli

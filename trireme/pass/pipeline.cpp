#include "trireme/pass/pipeline.h"

#include <algorithm>
#include <chrono>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/early_gathers.h"
#include "trireme/pass/early_updates.h"
#include "trireme/pass/fuse_rows.h"
#include "trireme/pass/loss_in_pieces.h"
#include "trireme/pass/recompute_rows.h"

namespace trireme {
namespace {

void check_name(const std::string& name) {
  std::vector<std::string> names;
  for (const Pass& pass : passes()) names.emplace_back(pass.name);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    fail(ErrorKind::kNotFound, "no pass named '{}'.{}", name, suggestion(name, names));
  }
}

}  // namespace

const std::vector<Pass>& passes() {
  static const std::vector<Pass> kPasses{
      {"loss_in_pieces", "the last product and the loss are computed in pieces of rows, if asked for",
       [](Program program, const PassOptions& options) {
         return loss_in_pieces(std::move(program), options.loss_pieces);
       }},
      {"recompute_rows", "what is cheap is recomputed for the backward pass, if asked for",
       [](Program program, const PassOptions& options) {
         return options.recompute ? recompute_rows(program) : std::move(program);
       }},
      {"fuse_all_reduce", "all-reduces over the same ranks become buckets",
       [](Program program, const PassOptions& options) {
         return fuse_all_reduce(std::move(program), options.all_reduce);
       }},
      {"early_updates", "parameters are updated as soon as their gradients are ready",
       [](Program program, const PassOptions& options) { return early_updates(program, options.all_reduce.rates); }},
      {"early_gathers", "weights that lie in slices are gathered one reader ahead",
       [](Program program, const PassOptions&) { return early_gathers(std::move(program)); }},
      {"fuse_rows", "ops that work on rows of the same tensors become one, block by block",
       [](Program program, const PassOptions&) { return fuse_rows(program); }},
  };
  return kPasses;
}

Program run_passes(Program program, const PassOptions& options) {
  for (const std::string& name : options.disabled) check_name(name);
  if (!options.stop_after.empty()) check_name(options.stop_after);
  int number = 0;
  for (const Pass& pass : passes()) {
    ++number;
    if (std::find(options.disabled.begin(), options.disabled.end(), pass.name) != options.disabled.end()) continue;
    const size_t before = program.graph.nodes().size();
    const bool told = log_on(LogLevel::kDebug, "pass") || !options.dump_dir.empty();
    const std::string old = told ? to_string(program.graph) : "";
    const auto start = std::chrono::steady_clock::now();
    program = pass.run(std::move(program), options);
    const std::vector<std::string> wrong = verify(program);
    invariant(wrong.empty(), "pass '{}' broke the program: {}", pass.name, wrong.empty() ? "" : wrong.front());
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    const bool changed = told && to_string(program.graph) != old;
    TRIREME_LOG(kDebug, "pass", "{} {}  ms={:.1f} nodes={}->{}", pass.name, changed ? "ran" : "changed nothing", ms,
                before, program.graph.nodes().size());
    if (changed && !options.dump_dir.empty()) {
      atomic_write(fmt::format("{}/{}{:03}_{}.program", options.dump_dir, options.dump_name, number, pass.name),
                   to_string(program));
    }
    if (pass.name == options.stop_after) break;
  }
  return program;
}

}  // namespace trireme

#include "trireme/pass/pipeline.h"

#include <algorithm>
#include <chrono>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/partition/partition.h"

namespace trireme {
namespace {

void check_name(const std::string& name) {
  std::vector<std::string> names;
  for (const Pass* each : passes()) names.emplace_back(each->name);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    fail(ErrorKind::kNotFound, "no pass named '{}'.{}", name, suggestion(name, names));
  }
}

Program run_pass(const Pass& which, int number, Program program, const PassOptions& options) {
  const size_t before = program.graph.nodes().size();
  const bool told = log_on(LogLevel::kDebug, "pass") || !options.dump_dir.empty();
  const std::string old = told ? to_string(program.graph) : "";
  const auto start = std::chrono::steady_clock::now();
  program = which.run(std::move(program), options);
  const std::vector<std::string> wrong = verify(program);
  invariant(wrong.empty(), "pass '{}' broke the program: {}", which.name, wrong.empty() ? "" : wrong.front());
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  const bool changed = told && to_string(program.graph) != old;
  TRIREME_LOG(kDebug, "pass", "{} {}  ms={:.1f} nodes={}->{}", which.name, changed ? "ran" : "changed nothing", ms,
              before, program.graph.nodes().size());
  if (changed && !options.dump_dir.empty()) {
    atomic_write(fmt::format("{}/{}{:03}_{}.program", options.dump_dir, options.dump_name, number, which.name),
                 to_string(program));
  }
  return program;
}

}  // namespace

const std::vector<const Pass*>& passes() {
  static const std::vector<const Pass*> kPasses{
#define TRIREME_PASS(name) &pass::name,
#include "trireme/pass/pass_list.def"
#undef TRIREME_PASS
  };
  return kPasses;
}

Program run_passes(Program program, const PassOptions& options) {
  for (const std::string& name : options.disabled) check_name(name);
  if (!options.stop_after.empty()) check_name(options.stop_after);
  int number = 0;
  for (const Pass* each : passes()) {
    ++number;
    const bool disabled = std::ranges::count(options.disabled, each->name) > 0;
    const bool asked_for = each->asked_for == nullptr || each->asked_for(options);
    if (asked_for && !disabled) program = run_pass(*each, number, std::move(program), options);
    if (each->name == options.stop_after) break;
  }
  return program;
}

}  // namespace trireme

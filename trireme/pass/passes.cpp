#include "trireme/pass/passes.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/partition/partition.h"

namespace trireme {
namespace {

// `is_checked`: the program was found sound.
Program run_pass(const Pass& which, int number, Program program, const PassOptions& options, bool& is_checked) {
  const size_t before = program.graph.nodes().size();
  const bool told = log_on(LogLevel::kDebug, "pass") || !options.dump_dir.empty();
  const std::string old = told ? to_string(program.graph) : "";
  const auto start = std::chrono::steady_clock::now();
  const Node* const nodes = program.graph.nodes().data();
  program = which.run(std::move(program), options);
  // A pass that finds nothing to do gives back the program that it got.
  const bool is_same = program.graph.nodes().data() == nodes && program.graph.nodes().size() == before;
  const bool is_known = (is_same && is_checked) || !options.verify;
  const std::vector<std::string> wrong = is_known ? std::vector<std::string>() : verify(program);
  is_checked = true;
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

namespace {

std::string text_of(const Recompute& again) {
  if (again.rows) return "selective";
  if (again.blocks < 0) return "full";
  return again.blocks > 0 ? std::to_string(again.blocks) : "none";
}

// It was true or false before it was one of these.
Recompute recompute_named(const std::string& name, const std::string& text) {
  Recompute out;
  out.rows = text == "selective" || text == "true";
  if (text == "full") out.blocks = -1;
  if (out.rows || out.blocks != 0 || text == "none" || text == "false") return out;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out.blocks);
  require(status == std::errc() && end == text.data() + text.size() && out.blocks >= 0 && out.blocks < 1000000,
          "configuration: {} = '{}'; it must be 'none', 'selective', 'full' or a number of blocks", name, text);
  return out;
}

}  // namespace

bool Recompute::keeps_gathered() const {
  return !optimizer_communication ||
         std::ranges::any_of(rules, [](const Rule& r) { return !r.optimizer_communication; });
}

bool Recompute::slices() const {
  return slice || std::ranges::any_of(rules, [](const Rule& r) { return r.slice || r.keep == Rule::Keep::kSlice; });
}

bool Recompute::keeps_elsewhere() const {
  using Keep = Rule::Keep;
  return std::ranges::any_of(rules, [](const Rule& r) { return r.keep == Keep::kHost || r.keep == Keep::kDisk; });
}

Recompute with_requests(const Graph& graph, Recompute options) {
  std::vector<Recompute::Rule> rules;
  for (const RecomputeRequest& request : graph.recompute_requests()) {
    rules.push_back({.pattern = request.scope,
                     .keep = request.again ? Recompute::Rule::Keep::kAgain : Recompute::Rule::Keep::kMemory,
                     .communication = request.mp_comm,
                     .optimizer_communication = request.optimizer_comm,
                     .slice = request.slice});
  }
  options.rules.insert(options.rules.begin(), rules.begin(), rules.end());
  return options;
}

std::vector<Key> keys_of(PassOptions& options) {
  const auto set_recompute = [again = &options.recompute](const std::string& name, const std::string& text) {
    const Recompute named = recompute_named(name, text);
    again->rows = named.rows;
    again->blocks = named.blocks;
  };
  return {{.name = "recompute",
           .target = TextOf{.text = [again = &options.recompute] { return text_of(*again); },
                            .set = set_recompute,
                            .was_switch = true},
           .doc = "what the backward pass computes again instead of finding it kept, with the same bits: none, "
                  "selective (activation functions and norms), full (all that is inside a block), or a number, of the "
                  "first blocks of each row of them (as a resnet's layer1)",
           .flag = "--recompute",
           .in_bench = true,
           .on_resume = OnResume::kFree},
          {.name = "loss_pieces",
           .target = &options.loss_pieces,
           .doc = "the last product and the loss are computed in this many pieces of a rank's positions, forward and "
                  "backward, so that only one piece's logits exist at a time: less memory, different last bits",
           .check = check_size,
           .flag = "--loss-pieces",
           .in_bench = true,
           .on_resume = OnResume::kFree}};
}

void say(const PassOptions& options, PassRemark remark) {
  if (options.remarks != nullptr && !remark.text.empty()) options.remarks->push_back(std::move(remark));
}

namespace pass {
#define TRIREME_PASS(name) extern const Pass name;
#include "trireme/pass/pass_list.def"
#undef TRIREME_PASS
}  // namespace pass

const std::vector<const Pass*>& passes() {
  static const std::vector<const Pass*> kPasses{
#define TRIREME_PASS(name) &pass::name,
#include "trireme/pass/pass_list.def"
#undef TRIREME_PASS
  };
  return kPasses;
}

const Pass& find_pass(std::string_view name) {
  std::vector<std::string> names;
  for (const Pass* each : passes()) {
    if (each->name == name) return *each;
    names.emplace_back(each->name);
  }
  fail(ErrorKind::kNotFound, "no pass named '{}'.{}", name, suggestion(std::string(name), names));
}

Program run_passes(Program program, const PassOptions& options) {
  for (const std::string& name : options.disabled) find_pass(name);
  if (!options.stop_after.empty()) find_pass(options.stop_after);
  int number = 0;
  bool is_checked = false;
  for (const Pass* each : passes()) {
    ++number;
    const bool disabled = std::ranges::count(options.disabled, each->name) > 0;
    const bool asked_for = each->asked_for == nullptr || each->asked_for(options);
    if (asked_for && !disabled) program = run_pass(*each, number, std::move(program), options, is_checked);
    if (each->name == options.stop_after) break;
  }
  return program;
}

}  // namespace trireme

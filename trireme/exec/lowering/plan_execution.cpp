#include "trireme/exec/lowering/plan_execution.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/exec/lowering/end_sends.h"
#include "trireme/exec/lowering/place_buffers.h"
#include "trireme/exec/lowering/plan_actions.h"
#include "trireme/exec/lowering/value_uses.h"
#include "trireme/exec/plan/communication_bytes.h"
#include "trireme/exec/plan/parts.h"
#include "trireme/exec/plan/reuse.h"
#include "trireme/op/overwrites.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

// Gives each value a buffer: of its own, or that of what it is a view of, is written over, or replaces.
class BufferChoice {
 public:
  // Adds to the plan, which has the actions.
  BufferChoice(const Program& program, const PlanOptions& options, const Device& device, PlannedActions planned,
               ExecutionPlan& plan)
      : program_(program),
        graph_(program.graph),
        options_(options),
        device_(device),
        planned_(std::move(planned)),
        plan_(plan),
        uses_(graph_, plan.actions, planned_.maker),
        end_(static_cast<int>(plan.actions.size())),
        buffer_of_(graph_.values().size(), -1),
        joined_(joined_parts(graph_, uses_.replaces())) {}

  // Returns groups of buffers that lie side by side.
  std::vector<std::vector<int>> run() {
    for (const Input& input : graph_.inputs()) add_input(input);
    for (int i = 0; i < end_; ++i) add_results(i);
    add_values();
    return std::move(together_);
  }

 private:
  const Node& node(int action) const { return graph_.nodes()[static_cast<size_t>(action)]; }
  Lane lane(int action) const { return plan_.actions[static_cast<size_t>(action)].lane; }
  int64_t scratch_bytes(int action) const { return planned_.scratch_bytes[static_cast<size_t>(action)]; }
  int buffer_of(ValueId id) const { return buffer_of_[static_cast<size_t>(id)]; }
  Buffer& buffer(int number) { return plan_.buffers[static_cast<size_t>(number)]; }
  const Buffer& buffer(int number) const { return plan_.buffers[static_cast<size_t>(number)]; }

  void add_values() {
    plan_.values.reserve(graph_.values().size());
    for (size_t id = 0; id < graph_.values().size(); ++id) {
      plan_.values.push_back({.type = graph_.values()[id].type,
                              .layout = program_.layouts[id],
                              .whole = program_.whole[id],
                              .buffer = buffer_of_[id],
                              .offset = joined_.offset[id],
                              .part_of = program_.part_of(static_cast<ValueId>(id))});
    }
  }

  int new_buffer(Holding holding, int64_t bytes, int first, int last) {
    plan_.buffers.push_back({.holding = holding, .bytes = bytes, .first = first, .last = last});
    users_.emplace_back();
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  void put(ValueId id, int number) {
    buffer_of_[static_cast<size_t>(id)] = number;
    users_[static_cast<size_t>(number)].push_back(id);
    Buffer& b = buffer(number);
    b.last = std::max(b.last, uses_.last(id));
  }

  void add_input(const Input& input) {
    const bool kept = input.role == Role::kParameter || input.role == Role::kState;
    const Holding holding = input.role == Role::kParameter ? Holding::kParameter
                            : input.role == Role::kState   ? Holding::kState
                                                           : Holding::kData;
    const int last = kept ? end_ : std::max(0, uses_.last(input.value));
    const int number = new_buffer(holding, graph_.type(input.value).bytes(), -1, last);
    buffer(number).tier = planned_.home[static_cast<size_t>(input.value)];
    if (const auto home = options_.homes.find(input.name); home != options_.homes.end()) {
      require(kept, "plan '{}': a home is given for '{}', which is {}; parameters and state have homes", graph_.name(),
              input.name, to_string(input.role));
      buffer(number).tier = home->second;
    }
    put(input.value, number);
    plan_.inputs.push_back({input.name, input.role, input.value, input.init});
  }

  void add_results(int i) {
    const Node& n = node(i);
    if (uses_.is_view(i)) {
      const auto from = static_cast<size_t>(n.inputs[0]), part = static_cast<size_t>(n.outputs[0]);
      joined_.offset[part] = joined_.offset[from] + bytes_before_part(*n.op, n.attrs, graph_.type(n.inputs[0]));
      put(n.outputs[0], buffer_of_[from]);
      return;
    }
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      const ValueId whole = joined_.into[static_cast<size_t>(n.outputs[k])];
      int number = whole == kNoValue ? overwritten(i, static_cast<int>(k)) : buffer_of(whole);
      if (number < 0) {
        number = new_buffer(holding_of(i), graph_.type(n.outputs[k]).bytes(), i, i);
        buffer(number).tier = tier_of_results(i);
      }
      put(n.outputs[k], number);
    }
    add_scratch(i);
    keep_together(i);
  }

  void add_scratch(int i) {
    const bool is_staged = communicates(lane(i)) && !device_.sends_in_place();
    const int64_t bytes = scratch_bytes(i) + (is_staged ? staged_bytes(i) : 0);
    if (bytes == 0) return;
    const int last = in_background(lane(i)) ? uses_.waited(i) : i;
    const int number = new_buffer(Holding::kScratch, bytes, i, last);
    plan_.actions[static_cast<size_t>(i)].scratch = number;
    if (is_staged || is_move(def_of(node(i))) || node(i).on_host) buffer(number).tier = Tier::kHost;
  }

  // What stays from step to step is staged on its way.
  Holding holding_of(int i) const {
    if (is_move(def_of(node(i)))) {
      const Holding from = buffer(buffer_of(node(i).inputs[0])).holding;
      return is_persistent(from) ? Holding::kScratch : from;
    }
    return node(i).phase == Phase::kBackward ? Holding::kGradient : Holding::kActivation;
  }
  Tier tier_of_results(int i) const {
    if (is_move(def_of(node(i)))) return move_of(node(i).attrs).to;
    return node(i).on_host ? Tier::kHost : Tier::kDevice;
  }

  // Of what is copied between the device and the host's memory (staged_work.h).
  int64_t staged_bytes(int i) const {
    std::vector<int> buffers;
    for (const auto* ids : {&node(i).inputs, &node(i).outputs}) {
      for (const ValueId id : *ids) {
        if (buffer(buffer_of(id)).tier == Tier::kDevice) buffers.push_back(buffer_of(id));
      }
    }
    std::ranges::sort(buffers);
    buffers.erase(std::ranges::unique(buffers).begin(), buffers.end());
    std::vector<int64_t> bytes;
    for (const int number : buffers) bytes.push_back(buffer(number).bytes);
    return staging_bytes(bytes);
  }

  // The buffer of an operand that result k may be written over, or -1. A persistent buffer may only be
  // overwritten by the result that updates it.
  int overwritten(int i, int k) {
    const Node& n = node(i);
    const auto id = n.outputs[static_cast<size_t>(k)];
    for (const auto& [result, operand] : aliases_of(i)) {
      if (result != k) continue;
      const ValueId from = n.inputs[static_cast<size_t>(operand)];
      const int number = buffer_of(from);
      const Buffer& b = buffer(number);
      if (graph_.type(from).bytes() != graph_.type(id).bytes() || b.bytes != graph_.type(id).bytes()) continue;
      const bool kept = is_persistent(b.holding);
      if (kept && !updates(id, from)) continue;
      if (taken_by_sibling(n, k, number) || times_read(n, from) > 1) continue;
      const int until = lane(i) == Lane::kComm || lane(i) == Lane::kHost ? uses_.waited(i) : i;
      const auto& users = users_[static_cast<size_t>(number)];
      const bool free = std::all_of(users.begin(), users.end(), [&](ValueId user) {
        const bool ends = uses_.last(user) <= until && !uses_.is_output(user);
        return ends && !uses_.read_after(user, i) && !in_flight(user, i);
      });
      if (free) return number;
    }
    return replaced(i, id);
  }

  // The buffer of the input that the result replaces, where nothing touches it from this action on; or -1.
  int replaced(int i, ValueId id) const {
    for (const ValueId input : uses_.replaces()[static_cast<size_t>(id)]) {
      const int number = buffer_of(input);
      const bool is_placed = is_move(def_of(node(i))) || node(i).on_host;  // by what it is, not by PlanOptions::homes
      if (is_placed && buffer(number).tier != tier_of_results(i)) continue;
      const auto& users = users_[static_cast<size_t>(number)];
      const bool free = std::all_of(users.begin(), users.end(),
                                    [&](ValueId user) { return uses_.last(user) < i && !in_flight(user, i); });
      if (free && graph_.type(input).bytes() == graph_.type(id).bytes()) return number;
    }
    return -1;
  }

  const std::vector<std::pair<int, int>>& aliases_of(int i) {
    const int kind = planned_.kind_of[static_cast<size_t>(i)];
    const CallKind& call = planned_.kinds[kind];
    return aliases_.get(kind, [&] { return overwrites_of(*call.op, call.types()); });
  }

  bool updates(ValueId id, ValueId input) const {
    const Few<ValueId, 2>& replaced = uses_.replaces()[static_cast<size_t>(id)];
    return std::find(replaced.begin(), replaced.end(), input) != replaced.end();
  }

  bool taken_by_sibling(const Node& n, int k, int number) const {
    for (int other = 0; other < k; ++other) {
      if (buffer_of(n.outputs[static_cast<size_t>(other)]) == number) return true;
    }
    return false;
  }

  int times_read(const Node& n, ValueId id) const {
    int times = 0;
    for (const ValueId input : n.inputs) times += buffer_of(input) == buffer_of(id) ? 1 : 0;
    return times;
  }

  bool in_flight(ValueId id, int i) const {
    return uses_.in_flight(id, i, is_persistent(buffer(buffer_of(id)).holding));
  }

  // Operands of one collective that are sent from where they lie do so side by side: it is one operation on one run of
  // bytes.
  void keep_together(int i) {
    if (lane(i) != Lane::kComm || node(i).inputs.size() < 2 || scratch_bytes(i) > 0) return;
    std::vector<int> members;
    for (const ValueId id : node(i).inputs) {
      const int number = buffer_of(id);
      if (is_persistent(buffer(number).holding)) return;
      if (std::find(members.begin(), members.end(), number) != members.end()) return;
      for (const auto& other : together_) {
        if (std::find(other.begin(), other.end(), number) != other.end()) return;
      }
      members.push_back(number);
    }
    together_.push_back(std::move(members));
  }

  const Program& program_;
  const Graph& graph_;
  const PlanOptions& options_;
  const Device& device_;
  const PlannedActions planned_;  // without its actions, which are the plan's
  ExecutionPlan& plan_;
  const ValueUses uses_;
  const int end_;                       // the number of actions
  std::vector<int> buffer_of_;          // of values
  JoinedParts joined_;                  // the offsets are those of all values in their buffers
  std::vector<Few<ValueId, 2>> users_;  // of buffers: the values in them
  std::vector<std::vector<int>> together_;
  OfKind<std::vector<std::pair<int, int>>> aliases_;
};

bool meets_disk(const ExecutionPlan& plan) {
  return plan.arena(Tier::kDisk).bytes > 0 || std::ranges::any_of(plan.actions, [](const Action& action) {
           return is_move(*action.op) && move_of(action.attrs).meets_disk();
         });
}

}  // namespace

ExecutionPlan plan_execution(const Program& program, const PlanOptions& options) {
  const Device& device = options.device != nullptr ? *options.device : cpu_device();
  ExecutionPlan plan;
  plan.name = program.graph.name();
  plan.mesh = program.mesh;
  plan.crew = options.crew;
  plan.crews = options.crews;
  plan.threads = options.threads;
  plan.device = device.name();
  plan.alignment = device.alignment();
  plan.bits = device.bits(options.numerics);
  plan.by_hand = program.by_hand;
  plan.micro_batches = program.micro_batches;
  plan.seq_chunks = program.seq_chunks;
  PlannedActions planned = plan_actions(program, options, device);
  plan.actions = std::move(planned.actions);
  const auto together = BufferChoice(program, options, device, std::move(planned), plan).run();
  for (const Output& output : program.graph.outputs())
    plan.outputs.push_back({output.name, output.value, output.updates == kNoValue ? -1 : output.updates});
  place_buffers(plan, together, options.external_parameters);
  if (meets_disk(plan)) plan.disk_blocks = options.disk_blocks;
  end_sends(plan);
  if (options.reuse.limit > 0) reuse_collectives(plan, options.reuse);
  return plan;
}

}  // namespace trireme

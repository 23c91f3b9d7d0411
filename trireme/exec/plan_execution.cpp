// From a program to its execution plan: kernels, buffers, lanes, offsets. See plan.h.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/exec/bounds_in_flight.h"
#include "trireme/exec/carrier.h"
#include "trireme/exec/collective.h"
#include "trireme/exec/disk/blocks.h"
#include "trireme/exec/end_sends.h"
#include "trireme/exec/parts.h"
#include "trireme/exec/place_buffers.h"
#include "trireme/exec/plan.h"
#include "trireme/op/call_kinds.h"
#include "trireme/op/message.h"
#include "trireme/op/overwrites.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

class Planner {
 public:
  Planner(const Program& program, const PlanOptions& options)
      : program_(program),
        graph_(program.graph),
        options_(options),
        device_(options.device ? *options.device : cpu_device()),
        end_(static_cast<int>(graph_.nodes().size())),
        last_use_(graph_.values().size(), -1),
        buffer_of_(graph_.values().size(), -1),
        producer_(graph_.values().size(), -1),
        last_read_(graph_.values().size(), -1),
        sent_by_(graph_.values().size()),
        in_flight_(graph_),
        home_(graph_.values().size(), Tier::kDevice) {}

  ExecutionPlan run() {
    plan_.name = graph_.name();
    plan_.mesh = program_.mesh;
    plan_.crew = options_.crew;
    plan_.crews = options_.crews;
    plan_.threads = options_.threads;
    plan_.device = device_.name();
    plan_.alignment = device_.alignment();
    plan_.bits = device_.bits(options_.numerics);
    plan_.by_hand = program_.by_hand;
    plan_.micro_batches = program_.micro_batches;
    plan_.seq_chunks = program_.seq_chunks;
    plan_.disk_blocks = options_.disk_blocks;
    add_actions();
    find_replaced();
    joined_ = joined_parts(graph_, replaces_);
    find_kept_results();
    find_last_uses();
    note_uses();
    for (const Input& input : graph_.inputs()) add_input(input);
    for (int i = 0; i < end_; ++i) add_results(i);
    for (const Output& output : graph_.outputs()) {
      plan_.outputs.push_back({output.name, output.value, output.updates == kNoValue ? -1 : output.updates});
    }
    plan_.values.reserve(graph_.values().size());
    for (size_t id = 0; id < graph_.values().size(); ++id) {
      plan_.values.push_back({graph_.values()[id].type, program_.layouts[id], program_.whole[id], buffer_of_[id]});
      plan_.values.back().offset = joined_.offset[id];
      plan_.values.back().part_of = program_.part_of(static_cast<ValueId>(id));
    }
    place_buffers(plan_, together_, options_.external_parameters);
    end_sends(plan_);
    if (options_.reuse.limit > 0) reuse_collectives(plan_, options_.reuse);
    return std::move(plan_);
  }

 private:
  const Node& node(int action) const { return graph_.nodes()[static_cast<size_t>(action)]; }
  int& last(ValueId id) { return last_use_[static_cast<size_t>(id)]; }

  void add_actions() {
    plan_.actions.reserve(static_cast<size_t>(end_));
    for (int i = 0; i < end_; ++i) {
      const Node& n = node(i);
      Action action{.op = &def_of(n), .attrs = n.attrs, .in = n.inputs, .out = n.outputs, .scope = scope_of(n)};
      const int kind = kinds_.of(graph_, n);
      kind_of_.push_back(kind);
      int64_t scratch = 0;
      action.lane = lane_of(*action.op, n.attrs, n.on_host);
      if (action.lane == Lane::kComm) {
        scratch = scratch_.get(kind, [&] { return collective_scratch(*action.op, kinds_[kind].types()); });
      } else if (action.op->kernel) {
        const KernelChoice& kernel = kernel_of(n, kind);
        action.kernel = shared(kernel.name);
        scratch = kernel.scratch_bytes;
      }
      if (n.on_host) {
        for (const ValueId id : n.inputs) put_home(id, Tier::kHost);
      }
      if (is_move(*action.op)) {
        const Move move = move_of(n.attrs);
        put_home(n.inputs[0], move.from);
        if (move.meets_disk()) scratch = staged_by_disk(graph_.type(n.inputs[0]).bytes(), options_.disk_blocks);
      }
      for (const ValueId id : n.outputs) producer_[static_cast<size_t>(id)] = i;
      for (const ValueId id : n.inputs) {
        const int from = producer_[static_cast<size_t>(id)];
        if (from < 0 || !in_background(lane(from)) || joins_on_host(action, from)) continue;
        if (std::find(action.waits.begin(), action.waits.end(), from) == action.waits.end()) {
          action.waits.push_back(from);
        }
      }
      in_flight_.bound(i, action, n);
      scratch_bytes_.push_back(scratch);
      plan_.actions.push_back(std::move(action));
    }
  }

  const SharedText& scope_of(const Node& n) {
    const auto at = static_cast<size_t>(n.scope);
    if (scopes_.size() <= at) scopes_.resize(at + 1);
    if (scopes_[at].empty()) scopes_[at] = graph_.scope_of(n);
    return scopes_[at];
  }
  const SharedText& shared(const std::string& name) { return names_.try_emplace(name, name).first->second; }
  // Parts that are made where they belong, which nobody reads before the next step (step_border.h).
  bool joins_on_host(const Action& action, int maker) const {
    return action.op->traits.joins_in_place && lane(maker) == Lane::kHost;
  }
  // Where an input lies, which is so all there or in part.
  void put_home(ValueId id, Tier tier) {
    home_[static_cast<size_t>(id)] = tier;
    if (const ValueId whole = seen_in_part(id); whole != kNoValue) home_[static_cast<size_t>(whole)] = tier;
  }
  // The input that a value is a part of, or kNoValue.
  ValueId seen_in_part(ValueId id) const {
    const int from = producer_[static_cast<size_t>(id)];
    if (from < 0 || node(from).op != &structural().part) return kNoValue;
    const ValueId whole = node(from).inputs[0];
    return producer_[static_cast<size_t>(whole)] < 0 ? whole : kNoValue;
  }

  const KernelChoice& kernel_of(const Node& n, int kind) {
    const TypeArgs local = kinds_[kind].types();
    const Device& device = n.on_host ? cpu_device() : device_;
    if (options_.numerics == Numerics::kFast) {
      return (n.on_host ? host_kernels_ : kernels_).get(kind, [&] {
        return device.choose({def_of(n), local, local, Numerics::kFast, options_.threads, options_.tuning});
      });
    }
    std::vector<TensorType> in, out;
    const auto whole = [&](ValueId id) {
      const auto part = program_.part_of(id);
      return part != nullptr ? part->whole : *program_.whole[static_cast<size_t>(id)];
    };
    for (const ValueId id : n.inputs) in.push_back({graph_.type(id).dtype, whole(id)});
    for (const ValueId id : n.outputs) out.push_back({graph_.type(id).dtype, whole(id)});
    invariant_kernel_ = device.choose({def_of(n), local, {in, out, n.attrs}, Numerics::kInvariant, options_.threads});
    return invariant_kernel_;
  }

  Lane lane(int action) const { return plan_.actions[static_cast<size_t>(action)].lane; }
  // Nobody reads what a send makes, so nobody waits for it until its bytes are used again (end_sends).
  bool is_send(int action) const { return lane(action) == Lane::kMessage && node(action).outputs.empty(); }

  // The last action that touches each value. What a communication reads stays in use up to the first action that waits
  // for it, which finds it free; what it writes, at least through that one. A view keeps what it looks at alive.
  void find_last_uses() {
    std::vector<int> waited(static_cast<size_t>(end_), end_);
    for (int i = end_; i-- > 0;) {
      for (const int comm : plan_.actions[static_cast<size_t>(i)].waits) waited[static_cast<size_t>(comm)] = i;
    }
    waited_ = waited;
    for (const Output& output : graph_.outputs()) last(output.value) = end_;
    for (int i = 0; i < end_; ++i) {
      const bool comm = in_background(lane(i)) && !is_send(i);
      const int until = comm ? waited[static_cast<size_t>(i)] : i;
      const bool ends_in_step = until > i && until < end_;
      const int read = until - (ends_in_step ? 1 : 0);
      for (const ValueId id : node(i).inputs) last(id) = std::max(last(id), read);
      for (const ValueId id : node(i).outputs) last(id) = std::max(last(id), until);
    }
    keep_sent();
    for (int i = end_; i-- > 0;) {
      if (is_view(i)) last(node(i).inputs[0]) = std::max(last(node(i).inputs[0]), last(node(i).outputs[0]));
    }
  }

  // What is sent keeps its bytes until its answer is there (op/message.h): by then it has been asked for, and whoever
  // uses the bytes next waits for no crew that waits for this one.
  void keep_sent() {
    std::map<std::pair<int64_t, int64_t>, int> there;  // by crew and tag: the first action that waits for the message
    for (int i = end_; i-- > 0;) {
      for (const int wait : plan_.actions[static_cast<size_t>(i)].waits) {
        if (lane(wait) == Lane::kMessage && !is_send(wait)) there[{message(wait).crew, message(wait).tag}] = i;
      }
    }
    for (int i = 0; i < end_; ++i) {
      if (!is_send(i) || message(i).answer < 0) continue;
      const auto answer = there.find({message(i).crew, message(i).answer});
      const ValueId sent = node(i).inputs[0];
      last(sent) = std::max(last(sent), answer == there.end() ? end_ - 1 : answer->second);
    }
  }
  Message message(int action) const { return message_of(def_of(node(action)), node(action).attrs); }

  void find_replaced() {
    replaces_.resize(graph_.values().size());
    is_replaced_.resize(graph_.values().size(), 0);
    is_result_.resize(graph_.values().size(), 0);
    for (const Output& output : graph_.outputs()) {
      is_result_[static_cast<size_t>(output.value)] = 1;
      if (output.updates == kNoValue) continue;
      replaces_[static_cast<size_t>(output.value)].push_back(output.updates);
      is_replaced_[static_cast<size_t>(output.updates)] = 1;
    }
  }

  // A view of what the step replaces, kept as a result, must be what it was before: it is a copy.
  void find_kept_results() {
    keeps_.assign(static_cast<size_t>(end_), 0);
    for (const Output& output : graph_.outputs()) {
      const int from = producer_[static_cast<size_t>(output.value)];
      ValueId base = output.value;
      for (int i = from; i >= 0 && is_view(i); i = producer_[static_cast<size_t>(base)]) base = node(i).inputs[0];
      const bool replaced = base != output.updates && is_replaced_[static_cast<size_t>(base)] != 0;
      if (replaced && base != output.value) keeps_[static_cast<size_t>(from)] = 1;
    }
  }

  bool is_view(int action) const {
    return def_of(node(action)).traits.zero_cost_view && keeps_[static_cast<size_t>(action)] == 0;
  }

  int new_buffer(Holding holding, int64_t bytes, int first, int last) {
    plan_.buffers.push_back({.holding = holding, .bytes = bytes, .first = first, .last = last});
    users_.emplace_back();
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  void put(ValueId id, int buffer) {
    buffer_of_[static_cast<size_t>(id)] = buffer;
    users_[static_cast<size_t>(buffer)].push_back(id);
    Buffer& b = plan_.buffers[static_cast<size_t>(buffer)];
    b.last = std::max(b.last, last(id));
  }

  void add_input(const Input& input) {
    const bool kept = input.role == Role::kParameter || input.role == Role::kState;
    const Holding holding = input.role == Role::kParameter ? Holding::kParameter
                            : input.role == Role::kState   ? Holding::kState
                                                           : Holding::kData;
    const int buffer =
        new_buffer(holding, graph_.type(input.value).bytes(), -1, kept ? end_ : std::max(0, last(input.value)));
    plan_.buffers[static_cast<size_t>(buffer)].tier = home_[static_cast<size_t>(input.value)];
    if (const auto home = options_.homes.find(input.name); home != options_.homes.end()) {
      require(kept, "plan '{}': a home is given for '{}', which is {}; parameters and state have homes", graph_.name(),
              input.name, to_string(input.role));
      plan_.buffers[static_cast<size_t>(buffer)].tier = home->second;
    }
    put(input.value, buffer);
    plan_.inputs.push_back({input.name, input.role, input.value, input.init});
  }

  void add_results(int i) {
    const Node& n = node(i);
    if (is_view(i)) {
      const auto from = static_cast<size_t>(n.inputs[0]), part = static_cast<size_t>(n.outputs[0]);
      joined_.offset[part] = joined_.offset[from] + bytes_before_part(*n.op, n.attrs, graph_.type(n.inputs[0]));
      put(n.outputs[0], buffer_of_[from]);
      return;
    }
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      const ValueId whole = joined_.into[static_cast<size_t>(n.outputs[k])];
      int buffer = whole == kNoValue ? overwritten(i, static_cast<int>(k)) : buffer_of_[static_cast<size_t>(whole)];
      if (buffer < 0) {
        buffer = new_buffer(holding_of(i), graph_.type(n.outputs[k]).bytes(), i, i);
        plan_.buffers[static_cast<size_t>(buffer)].tier = tier_of_results(i);
      }
      put(n.outputs[k], buffer);
    }
    const bool is_carried = communicates(lane(i)) && !device_.sends_in_place();
    const int64_t bytes = scratch_bytes_[static_cast<size_t>(i)] + (is_carried ? staged_bytes(i) : 0);
    if (bytes > 0) {
      const bool comm = in_background(lane(i));
      const int scratch =
          new_buffer(Holding::kScratch, bytes, i, comm ? std::min(waited_[static_cast<size_t>(i)], end_) : i);
      plan_.actions[static_cast<size_t>(i)].scratch = scratch;
      if (is_carried || is_move(def_of(node(i))) || node(i).on_host)
        plan_.buffers[static_cast<size_t>(scratch)].tier = Tier::kHost;
    }
    keep_together(i);
  }

  // What stays from step to step is staged on its way.
  Holding holding_of(int i) const {
    if (is_move(def_of(node(i)))) {
      const Holding from =
          plan_.buffers[static_cast<size_t>(buffer_of_[static_cast<size_t>(node(i).inputs[0])])].holding;
      return is_persistent(from) ? Holding::kScratch : from;
    }
    return node(i).phase == Phase::kBackward ? Holding::kGradient : Holding::kActivation;
  }
  Tier tier_of_results(int i) const {
    if (is_move(def_of(node(i)))) return move_of(node(i).attrs).to;
    return node(i).on_host ? Tier::kHost : Tier::kDevice;
  }

  // What is carried between the device and the host's memory (exec/carrier.h).
  int64_t staged_bytes(int i) const {
    std::vector<int> buffers;
    for (const auto* ids : {&node(i).inputs, &node(i).outputs}) {
      for (const ValueId id : *ids) {
        const int buffer = buffer_of_[static_cast<size_t>(id)];
        if (plan_.buffers[static_cast<size_t>(buffer)].tier == Tier::kDevice) buffers.push_back(buffer);
      }
    }
    std::ranges::sort(buffers);
    buffers.erase(std::ranges::unique(buffers).begin(), buffers.end());
    std::vector<int64_t> bytes;
    for (const int buffer : buffers) bytes.push_back(plan_.buffers[static_cast<size_t>(buffer)].bytes);
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
      const int buffer = buffer_of_[static_cast<size_t>(from)];
      const Buffer& b = plan_.buffers[static_cast<size_t>(buffer)];
      if (graph_.type(from).bytes() != graph_.type(id).bytes() || b.bytes != graph_.type(id).bytes()) continue;
      const bool kept = is_persistent(b.holding);
      if (kept && !updates(id, from)) continue;
      if (taken_by_sibling(n, k, buffer) || times_read(n, from) > 1) continue;
      const int until = lane(i) == Lane::kComm || lane(i) == Lane::kHost ? waited_[static_cast<size_t>(i)] : i;
      const auto& users = users_[static_cast<size_t>(buffer)];
      const bool free = std::all_of(users.begin(), users.end(), [&](ValueId user) {
        const bool ends = last_use_[static_cast<size_t>(user)] <= until && is_result_[static_cast<size_t>(user)] == 0;
        return ends && !read_after(user, i) && !in_flight(user, i);
      });
      if (free) return buffer;
    }
    return replaced(i, id);
  }

  // The buffer of the input that the result replaces, where nothing touches it from this action on; or -1.
  int replaced(int i, ValueId id) const {
    for (const ValueId input : replaces_[static_cast<size_t>(id)]) {
      const int buffer = buffer_of_[static_cast<size_t>(input)];
      const bool is_placed = is_move(def_of(node(i))) || node(i).on_host;  // by what it is, not by PlanOptions::homes
      if (is_placed && plan_.buffers[static_cast<size_t>(buffer)].tier != tier_of_results(i)) continue;
      const auto& users = users_[static_cast<size_t>(buffer)];
      const bool free = std::all_of(users.begin(), users.end(), [&](ValueId user) {
        return last_use_[static_cast<size_t>(user)] < i && !in_flight(user, i);
      });
      if (free && graph_.type(input).bytes() == graph_.type(id).bytes()) return buffer;
    }
    return -1;
  }

  const std::vector<std::pair<int, int>>& aliases_of(int i) {
    const int kind = kind_of_[static_cast<size_t>(i)];
    return aliases_.get(kind, [&] { return overwrites_of(*kinds_[kind].op, kinds_[kind].types()); });
  }

  bool updates(ValueId id, ValueId input) const {
    const Few<ValueId, 2>& replaced = replaces_[static_cast<size_t>(id)];
    return std::find(replaced.begin(), replaced.end(), input) != replaced.end();
  }

  bool taken_by_sibling(const Node& n, int k, int buffer) const {
    for (int other = 0; other < k; ++other) {
      if (buffer_of_[static_cast<size_t>(n.outputs[static_cast<size_t>(other)])] == buffer) return true;
    }
    return false;
  }

  int times_read(const Node& n, ValueId id) const {
    const int buffer = buffer_of_[static_cast<size_t>(id)];
    int times = 0;
    for (const ValueId input : n.inputs) times += buffer_of_[static_cast<size_t>(input)] == buffer ? 1 : 0;
    return times;
  }

  // Whether any action after i reads the value itself (its last use may be an extended one).
  bool read_after(ValueId id, int i) const {
    const int read = last_read_[static_cast<size_t>(id)];
    return read > i && read <= last_use_[static_cast<size_t>(id)];
  }

  // Whether a communication that began before i may still read or write the value when i starts. A send of what stays
  // from step to step ends before it is overwritten; what is of the step alone has better bytes to go to than to wait
  // for.
  bool in_flight(ValueId id, int i) const {
    const bool stays = is_persistent(plan_.buffers[static_cast<size_t>(buffer_of_[static_cast<size_t>(id)])].holding);
    return std::ranges::any_of(sent_by_[static_cast<size_t>(id)], [&](int j) {
      return j < i && waited_[static_cast<size_t>(j)] > i && !(stays && is_send(j));
    });
  }

  // The last action that reads each value, and the communications that read or write it.
  void note_uses() {
    for (int i = 0; i < end_; ++i) {
      const bool sends = in_background(lane(i));
      for (const ValueId id : node(i).inputs) {
        last_read_[static_cast<size_t>(id)] = i;
        if (sends) sent_by_[static_cast<size_t>(id)].push_back(i);
      }
      for (const ValueId id : node(i).outputs) {
        if (sends) sent_by_[static_cast<size_t>(id)].push_back(i);
      }
    }
  }

  // Operands of one collective that are sent from where they lie do so side by side: it is one operation on one run of
  // bytes.
  void keep_together(int i) {
    if (lane(i) != Lane::kComm || node(i).inputs.size() < 2 || scratch_bytes_[static_cast<size_t>(i)] > 0) return;
    std::vector<int> members;
    for (const ValueId id : node(i).inputs) {
      const int buffer = buffer_of_[static_cast<size_t>(id)];
      if (is_persistent(plan_.buffers[static_cast<size_t>(buffer)].holding)) return;
      if (std::find(members.begin(), members.end(), buffer) != members.end()) return;
      for (const auto& other : together_) {
        if (std::find(other.begin(), other.end(), buffer) != other.end()) return;
      }
      members.push_back(buffer);
    }
    together_.push_back(std::move(members));
  }

  const Program& program_;
  const Graph& graph_;
  const PlanOptions& options_;
  const Device& device_;
  int end_;
  std::vector<int> last_use_;
  std::vector<int> buffer_of_;
  JoinedParts joined_;  // the offsets are those of all values in their buffers
  std::vector<int> producer_;
  std::vector<int> last_read_;
  std::vector<Few<int, 2>> sent_by_;
  BoundsInFlight in_flight_;
  std::vector<Tier> home_;  // per value: where moves find it
  std::vector<int> waited_;
  std::vector<int64_t> scratch_bytes_;
  std::vector<char> keeps_;                // per action
  std::vector<Few<ValueId, 2>> replaces_;  // per value: the inputs that are it after the step
  std::vector<char> is_replaced_;          // per value
  std::vector<char> is_result_;            // per value: of the step, which nothing that ends with it overwrites
  std::vector<Few<ValueId, 2>> users_;     // per buffer
  std::vector<std::vector<int>> together_;
  CallKinds kinds_;
  std::vector<int> kind_of_;  // of actions
  OfKind<int64_t> scratch_;   // of collectives
  OfKind<KernelChoice> kernels_, host_kernels_;
  std::vector<SharedText> scopes_;                     // by number
  std::unordered_map<std::string, SharedText> names_;  // of kernels
  KernelChoice invariant_kernel_;                      // the one that was chosen last
  OfKind<std::vector<std::pair<int, int>>> aliases_;
  ExecutionPlan plan_;
};

}  // namespace

ExecutionPlan plan_execution(const Program& program, const PlanOptions& options) {
  return Planner(program, options).run();
}

}  // namespace trireme

// The text form of a graph: one line a value-making statement, read back to an equal graph.
//
//   graph "mlp"
//   %0: f32[32,784] = data "image"
//   %1: f32[512,784] = parameter "up.weight" normal(0,0.02)
//   %7: f32[512,3,64] = parameter "qkv.weight" saved as [512,192]
//   %8: f32[256,784] = parameter "half.weight" piece "[tp, -]"
//   %2: f32[32,512] = matmul(%0, %1) {transpose_a=false, transpose_b=true} @"up"
//   %9: f32[32,512] d%2 = gelu_grad(%7, %8) @"grad/act" backward of 3
//   %12: f32[512,784] = sgd_plain_update(%1, %10, %11, %6) {weight_decay=0} @"update/up.weight" update
//   shard "up" "[dp, -], [tp, -]"
//   stage "up" 0
//   on host "up"
//   output "loss" %9
//   output "up.weight" %12 updates %1
//   update %1 from %10
//
// "d%2" is said of a gradient of %2; "backward of 3", of a part of the gradient of node 3, by order from 0; "again", of
// what is made a second time; "stage 2" and "micro_batch 0", of a node of a pipeline; "on
// host", of one that runs there; "update %1 from %10 with %3 %4",
// of a parameter, its gradient and its state.

#include <charconv>
#include <map>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/ir/graph.h"

namespace trireme {

namespace {

std::string in_quotes(std::string_view text) {
  std::string out;
  detail::write_attr(out, std::string(text));
  return out;
}

}  // namespace

namespace {

std::string mark_text(const Node& node) {
  std::string out;
  if (node.phase != Phase::kForward) out += fmt::format(" {}", to_string(node.phase));
  if (node.gradient_of >= 0) out += fmt::format(" of {}", node.gradient_of);
  if (node.again) out += " again";
  if (node.stage >= 0) out += fmt::format(" stage {}", node.stage);
  if (node.micro_batch >= 0) out += fmt::format(" micro_batch {}", node.micro_batch);
  if (node.on_host) out += " on host";
  return out;
}

std::string made_text(const Graph& graph, ValueId id) {
  std::string out = fmt::format("%{}: {}", id, to_string(graph.type(id)));
  for (const GradientOf& each : graph.gradients_that_are(id)) out += fmt::format(" d%{}", each.of);
  return out;
}

}  // namespace

// Statements stand in the order of the values they make, so that reading them numbers the values the same.
std::string to_string(const Graph& graph) {
  std::string out = "graph " + in_quotes(graph.name()) + "\n";
  auto input = graph.inputs().begin();
  const auto write_inputs_below = [&](ValueId end) {
    for (; input != graph.inputs().end() && input->value < end; ++input) {
      out += fmt::format("{} = {} {}", made_text(graph, input->value), to_string(input->role), in_quotes(input->name));
      if (input->init != Init{}) out += " " + to_string(input->init);
      if (input->saved_as.rank() > 0) out += " saved as " + to_string(input->saved_as);
      if (!input->piece.empty()) out += " piece " + in_quotes(to_string(input->piece));
      out += '\n';
    }
  };
  for (const Node& node : graph.nodes()) {
    for (const ValueId id : node.inputs) write_inputs_below(id + 1);
    if (!node.outputs.empty()) write_inputs_below(node.outputs.front());
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      out += fmt::format("{}{}", i > 0 ? ", " : "", made_text(graph, node.outputs[i]));
    }
    out += fmt::format("{}{}(", node.outputs.empty() ? "" : " = ", node.op->name);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      out += fmt::format("{}%{}", i > 0 ? ", " : "", node.inputs[i]);
    }
    out += ")";
    if (node.attrs.text() != "{}") out += " " + node.attrs.text();
    if (!graph.scope_of(node).empty()) out += " @" + in_quotes(graph.scope_of(node));
    out += mark_text(node) + '\n';
  }
  for (const ShardRequest& request : graph.shard_requests()) {
    out += fmt::format("shard {} {}\n", in_quotes(request.scope), in_quotes(request.cuts.text));
  }
  for (const StageRequest& request : graph.stage_requests()) {
    out += fmt::format("stage {} {}\n", in_quotes(request.scope), request.stage);
  }
  for (const RecomputeRequest& request : graph.recompute_requests()) {
    out += fmt::format("recompute {}{}{}{}{}\n", in_quotes(request.scope), request.again ? "" : " kept",
                       request.mp_comm ? "" : " without mp_comm",
                       request.optimizer_comm ? "" : " without optimizer_comm", request.slice ? " in slices" : "");
  }
  for (const HostRequest& request : graph.host_requests()) {
    out += fmt::format("on {} {}\n", request.on_host ? "host" : "device", in_quotes(request.scope));
  }
  for (const HomeRequest& request : graph.home_requests()) out += fmt::format("home {}\n", in_quotes(request.rule));
  for (const FusionRequest& request : graph.fusion_requests()) {
    out += fmt::format("fusion {} {}{}\n", in_quotes(request.scope), request.id, request.inside ? "" : " own");
  }
  write_inputs_below(static_cast<ValueId>(graph.values().size()));
  for (const Output& output : graph.outputs()) {
    out += fmt::format("output {} %{}", in_quotes(output.name), output.value);
    if (output.updates != kNoValue) out += fmt::format(" updates %{}", output.updates);
    out += '\n';
  }
  for (const Update& update : graph.updates()) {
    out +=
        fmt::format("update %{} from %{}{}", update.parameter, update.gradient, update.states.empty() ? "" : " with");
    for (const ValueId state : update.states) out += fmt::format(" %{}", state);
    out += '\n';
  }
  return out;
}

namespace {

// Reads one line from left to right.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) {}

  [[noreturn]] void wrong(std::string_view what) const {
    fail(ErrorKind::kInvalidArgument, "graph text, line {}: {} at '{}'", number_, what, rest_);
  }
  bool end() {
    skip_spaces();
    return rest_.empty();
  }
  bool at(char c) {
    skip_spaces();
    return rest_.starts_with(c);
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) wrong(fmt::format("expected '{}'", token));
  }
  std::string_view until(std::string_view stops) {
    skip_spaces();
    const size_t n = std::min(rest_.find_first_of(stops), rest_.size());
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  ValueId value() {
    expect("%");
    ValueId id = kNoValue;
    const auto [next, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), id);
    if (status != std::errc() || id < 0) wrong("expected a value number");
    rest_.remove_prefix(static_cast<size_t>(next - rest_.data()));
    return id;
  }
  NodeId node(size_t below) {
    skip_spaces();
    NodeId id = -1;
    const auto [next, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), id);
    if (status != std::errc() || id < 0 || static_cast<size_t>(id) >= below)
      wrong("expected the number of a node above");
    rest_.remove_prefix(static_cast<size_t>(next - rest_.data()));
    return id;
  }
  int count() { return number<int>(); }
  template <class T>
  T number() {
    skip_spaces();
    T out = -1;
    const auto [next, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    if (status != std::errc() || out < 0) wrong("expected a number from 0");
    rest_.remove_prefix(static_cast<size_t>(next - rest_.data()));
    return out;
  }
  std::string quoted() {
    skip_spaces();
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    std::string out;
    if (end >= rest_.size() || !detail::read_attr(rest_.substr(0, end + 1), out)) wrong("expected a \"name\"");
    rest_.remove_prefix(end + 1);
    return out;
  }
  Shape shape() {
    skip_spaces();
    const size_t close = rest_.find(']');
    Shape out;
    if (close == std::string_view::npos || !detail::read_attr(rest_.substr(0, close + 1), out)) {
      wrong("expected a shape like [4,8]");
    }
    rest_.remove_prefix(close + 1);
    return out;
  }
  TensorType type() {
    skip_spaces();
    const size_t close = rest_.find(']');
    if (close == std::string_view::npos) wrong("expected a type like f32[4,8]");
    const std::string_view text = rest_.substr(0, close + 1);
    rest_.remove_prefix(close + 1);
    return parse_tensor_type(text);
  }
  // "{...}" with quotes and nesting respected; "{}" when there is none.
  std::string_view attrs() {
    skip_spaces();
    if (!rest_.starts_with('{')) return "{}";
    bool in_quotes = false;
    for (size_t i = 0; i < rest_.size(); ++i) {
      if (rest_[i] == '\\' && in_quotes) {
        ++i;
      } else if (rest_[i] == '"') {
        in_quotes = !in_quotes;
      } else if (rest_[i] == '}' && !in_quotes) {
        const std::string_view out = rest_.substr(0, i + 1);
        rest_.remove_prefix(i + 1);
        return out;
      }
    }
    wrong("attributes are not closed");
  }
  double number() {
    const std::string_view text = until(",)");
    double out = 0;
    if (!detail::read_attr(text, out)) wrong("expected a number");
    return out;
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  std::string_view rest_;
  int number_;
};

Init read_init(Line& line) {
  if (line.end()) return {};
  Init init;
  const std::string_view kind = line.until("(");
  line.expect("(");
  init.a = line.number();
  if (kind == "normal" || kind == "uniform") {
    init.kind = kind == "normal" ? Init::Kind::kNormal : Init::Kind::kUniform;
    line.expect(",");
    init.b = line.number();
  } else if (kind != "constant") {
    line.wrong(fmt::format("no initialiser '{}'", kind));
  }
  line.expect(")");
  return init;
}

// A value that has a text form of its own.
template <class Value>
Value written(const Line& line, const std::string& text) {
  try {
    return Value(text);
  } catch (const Error& e) {
    line.wrong(e.text());
  }
}

class Reader {
 public:
  explicit Reader(const OpBase* (*find_op)(std::string_view)) : find_op_(find_op) {}

  void read(Line& line) {
    if (line.take("shard ")) {
      std::string scope = line.quoted();
      graph_.add_shard_request({std::move(scope), written<Cuts>(line, line.quoted())});
    } else if (line.take("stage ")) {
      std::string scope = line.quoted();
      graph_.add_stage_request({std::move(scope), line.count()});
    } else if (line.take("recompute ")) {
      RecomputeRequest request{.scope = line.quoted()};
      request.again = !line.take("kept");
      request.mp_comm = !line.take("without mp_comm");
      request.optimizer_comm = !line.take("without optimizer_comm");
      request.slice = line.take("in slices");
      graph_.add_recompute_request(std::move(request));
    } else if (line.take("on ")) {
      const bool on_host = line.take("host ");
      if (!on_host) line.expect("device ");
      graph_.add_host_request({line.quoted(), on_host});
    } else if (line.take("home ")) {
      graph_.add_home_request({line.quoted()});
    } else if (line.take("fusion ")) {
      FusionRequest request{.scope = line.quoted(), .order = graph_.fusion_requests().size()};
      request.id = line.number<int64_t>();
      request.inside = !line.take("own");
      graph_.add_fusion_request(std::move(request));
    } else if (line.take("graph")) {
      if (begun_) line.wrong("the graph's name must stand first");
      graph_ = Graph(line.quoted());
    } else if (line.take("output")) {
      std::string name = line.quoted();
      const ValueId value = known(line, line.value());
      const ValueId updates = line.take("updates") ? known(line, line.value()) : kNoValue;
      graph_.add_output(std::move(name), value, updates);
    } else if (line.take("update ")) {
      Update update{.parameter = known(line, line.value())};
      line.expect("from");
      update.gradient = known(line, line.value());
      if (line.take("with")) {
        do update.states.push_back(known(line, line.value()));
        while (line.at('%'));
      }
      graph_.add_update(std::move(update));
    } else {
      statement(line);
    }
    if (!line.end()) line.wrong("unexpected text");
    begun_ = true;
  }
  // A gradient may stand above the value that it is the gradient of.
  Graph take() {
    for (const auto& [line, gradient, of] : gradients_) graph_.add_gradient(known(line, of), known(line, gradient));
    return std::move(graph_);
  }

 private:
  ValueId known(const Line& line, ValueId text_id) const {
    const auto found = map_.find(text_id);
    if (found == map_.end()) line.wrong(fmt::format("%{} is not made above", text_id));
    return found->second;
  }
  void statement(Line& line) {
    std::vector<ValueId> ids;
    std::vector<TensorType> types;
    while (line.at('%') || !(ids.empty() || line.take("="))) {
      if (!ids.empty()) line.expect(",");
      ids.push_back(line.value());
      line.expect(":");
      types.push_back(line.type());
      while (line.take("d")) gradients_.emplace_back(line, ids.back(), line.value());
    }
    for (const Role role : {Role::kData, Role::kParameter, Role::kState, Role::kSchedule}) {
      if (!line.take(fmt::format("{} ", to_string(role)))) continue;
      if (ids.size() != 1) line.wrong("an input has one value");
      std::string name = line.quoted();
      const Init init = line.at('s') || line.at('p') ? Init{} : read_init(line);
      const Shape saved_as = line.take("saved as") ? line.shape() : Shape{};
      const Piece piece = line.take("piece ") ? written<Piece>(line, line.quoted()) : Piece();
      define(line, ids[0], graph_.add_input(std::move(name), types[0], role, init, saved_as, piece));
      return;
    }
    const std::string_view name = line.until("( ");
    const OpBase* op = find_op_(name);
    if (op == nullptr) line.wrong(fmt::format("no op named '{}'", name));
    line.expect("(");
    std::vector<ValueId> inputs;
    while (!line.take(")")) {
      if (!inputs.empty()) line.expect(",");
      inputs.push_back(known(line, line.value()));
    }
    Attrs attrs = op->parse_attrs(line.attrs());
    graph_.set_scope(line.take("@") ? line.quoted() : "");
    read_mark(line);
    const NodeId node = graph_.add_node(*op, std::move(attrs), inputs, types);
    for (size_t i = 0; i < ids.size(); ++i) define(line, ids[i], graph_.node(node).outputs[i]);
  }
  void read_mark(Line& line) {
    if (line.at('g'))
      line.wrong("expected 'backward' or 'update': older texts have 'gradient of' and no phase; print the graph again");
    Mark mark{.scope = graph_.mark().scope};
    for (const Phase phase : {Phase::kBackward, Phase::kUpdate}) {
      if (line.take(to_string(phase))) mark.phase = phase;
    }
    if (line.take("of")) mark.gradient_of = line.node(graph_.nodes().size());
    mark.again = line.take("again");
    if (line.take("stage")) mark.stage = line.count();
    if (line.take("micro_batch")) mark.micro_batch = line.count();
    mark.on_host = line.take("on host");
    graph_.set_mark(mark);
  }
  void define(const Line& line, ValueId text_id, ValueId id) {
    if (!map_.emplace(text_id, id).second) line.wrong(fmt::format("%{} is made twice", text_id));
  }

  const OpBase* (*find_op_)(std::string_view);
  Graph graph_;
  bool begun_ = false;  // a statement was read
  std::map<ValueId, ValueId> map_;
  std::vector<std::tuple<Line, ValueId, ValueId>> gradients_;  // where it is said, the gradient, of what
};

}  // namespace

Graph parse_graph(std::string_view text, const OpBase* (*find_op)(std::string_view)) {
  Reader reader(find_op);
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    Line line(text.substr(0, end), ++number);
    try {
      if (!line.end()) reader.read(line);
    } catch (Error& e) {
      e.note(fmt::format("in line {} of the graph text", number));
      throw;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.take();
}

}  // namespace trireme

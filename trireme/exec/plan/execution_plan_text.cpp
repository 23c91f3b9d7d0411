// The text form of an execution plan. One record a line, key=value fields, strings quoted:
//
//   plan 2 "gpt" mesh="dp=2" crew=0 crews=1 threads=1 bits="fast on avx2" micro_batches=1 by_hand=false
//   arena device bytes=8192 persistent=4096 lower_bound=8192
//   buffer parameter device bytes=256 offset=0 live=[-1,12]
//   value f32[4,8] layout="[dp, -]" whole=[8,8] buffer=0 micro_batch=-1
//   input parameter "w" value=0 init="normal(0,0.02)"
//   call all_reduce in=[f32[4096]] out=[f32[4096]] attrs={...}
//   action compute matmul kernel="matmul.sgemm" in=[0,1] out=[2] waits=[] scratch=-1 scope="up" attrs={...}
//   output "loss" value=9 updates=-1
//
// A value that begins after its buffer does ends its line with offset=4096. An arena that has no bytes has no line.
// Actions of a call have "call=3" instead of an op, kernel="..." and attrs={...}; a plan without calls has no lines of
// them. A plan for a device other than cpu ends its first line with device="..." alignment=64, one of chunks of
// positions, or with other blocks of the disk than usual, ends it with more.
#include <array>
#include <cctype>
#include <charconv>
#include <unordered_map>

#include "trireme/base/append_text.h"
#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/exec/plan/call_text.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/op/message.h"
#include "trireme/op/registry.h"

namespace trireme {
namespace {

constexpr std::array<std::string_view, kLanes> kLaneNames{"compute", "comm", "message", "in",
                                                          "out",     "load", "store",   "host"};
constexpr std::array<std::string_view, kHoldings> kHoldingNames{"parameter",  "state",    "data",
                                                                "activation", "gradient", "scratch"};

std::string list(const std::vector<TensorType>& types) {
  std::string out = "[";
  for (size_t i = 0; i < types.size(); ++i) out += (i > 0 ? ";" : "") + to_string(types[i]);
  return out + "]";
}

std::string quote(std::string_view text) {
  std::string out;
  detail::write_attr(out, std::string(text));
  return out;
}

// One line: words and quoted strings in front, then key=value fields in a fixed order.
class Fields {
 public:
  Fields(std::string_view line, int number) : rest_(line), number_(number) {}

  static constexpr std::string_view kWhere = "plan text, line ";
  [[noreturn]] void wrong(std::string_view what) const {
    fail(ErrorKind::kInvalidArgument, "{}{}: {} at '{}'", kWhere, number_, what, rest_);
  }
  std::string_view token() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
    size_t end = 0;
    bool quoted = false;
    int depth = 0;
    for (; end < rest_.size() && (quoted || depth > 0 || rest_[end] != ' '); ++end) {
      const char c = rest_[end];
      if (quoted && c == '\\') {
        ++end;
      } else if (c == '"') {
        quoted = !quoted;
      } else if (!quoted) {
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
      }
    }
    const std::string_view out = rest_.substr(0, std::min(end, rest_.size()));
    rest_.remove_prefix(out.size());
    if (out.empty()) wrong("the line ends too early");
    return out;
  }
  std::string string() { return read<std::string>(token()); }
  std::string_view field(std::string_view key) {
    const std::string_view text = token();
    if (text.size() <= key.size() || !text.starts_with(key) || text[key.size()] != '=') {
      wrong(fmt::format("expected {}=..., found '{}'", key, text));
    }
    return text.substr(key.size() + 1);
  }
  template <class T>
  T get(std::string_view key) {
    return read<T>(field(key));
  }
  int integer(std::string_view key, int64_t low, int64_t high) {
    const int64_t value = get<int64_t>(key);
    if (value < low || value >= high) wrong(fmt::format("{}={} is not in [{},{})", key, value, low, high));
    return static_cast<int>(value);
  }
  std::vector<int> indices(std::string_view key, size_t below) {
    std::vector<int> out;
    for (const int64_t item : get<std::vector<int64_t>>(key)) {
      if (item < 0 || item >= static_cast<int64_t>(below)) wrong(fmt::format("{}: no index {}", key, item));
      out.push_back(static_cast<int>(item));
    }
    return out;
  }
  template <size_t N>
  size_t one_of(const std::array<std::string_view, N>& words) {
    const std::string_view word = token();
    for (size_t i = 0; i < N; ++i) {
      if (words[i] == word) return i;
    }
    wrong(fmt::format("unknown word '{}'", word));
  }
  bool at_end() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
    return rest_.empty();
  }
  void done() {
    if (!at_end()) wrong("unexpected text");
  }

 private:
  template <class T>
  T read(std::string_view text) {
    T value{};
    if (!detail::read_attr(text, value)) wrong(fmt::format("cannot read '{}'", text));
    return value;
  }
  std::string_view rest_;
  int number_;
};

Init parse_init(const std::string& text, const Fields& fields) {
  const size_t open = text.find('(');
  const size_t comma = text.find(',');
  if (open == std::string::npos || text.back() != ')') fields.wrong("expected an initialiser");
  const std::string kind = text.substr(0, open);
  Init init;
  const size_t end = comma == std::string::npos ? text.size() - 1 : comma;
  bool ok = detail::read_attr(std::string_view(text).substr(open + 1, end - open - 1), init.a);
  if (kind == "normal" || kind == "uniform") {
    init.kind = kind == "normal" ? Init::Kind::kNormal : Init::Kind::kUniform;
    ok = ok && comma != std::string::npos &&
         detail::read_attr(std::string_view(text).substr(comma + 1, text.size() - comma - 2), init.b);
  } else {
    ok = ok && kind == "constant";
  }
  if (!ok) fields.wrong(fmt::format("cannot read initialiser '{}'", text));
  return init;
}

class PlanReader {
 public:
  void line(Fields& f) {
    const std::string_view kind = f.token();
    if ((kind == "plan") == begun_) f.wrong("a plan begins with one line 'plan 2 ...'");
    begun_ = true;
    if (kind == "plan") return head(f);
    if (kind == "arena") return arena(f);
    if (kind == "buffer") return buffer(f);
    if (kind == "value") return value(f);
    if (kind == "input") return input(f);
    if (kind == "call") return call(f);
    if (kind == "action") return action(f);
    if (kind == "output") return output(f);
    f.wrong(fmt::format("unknown record '{}'", kind));
  }
  ExecutionPlan take() {
    require(begun_, "plan text, line 1: the text is empty; a plan begins with one line 'plan 2 ...'");
    return std::move(plan_);
  }

 private:
  void head(Fields& f) {
    if (f.token() != "2") f.wrong("this version reads plans of version 2");
    plan_.name = f.string();
    plan_.mesh = parse_mesh(f.get<std::string>("mesh"));
    plan_.crew = f.integer("crew", 0, kMostCrews);
    plan_.crews = f.integer("crews", plan_.crew + 1, kMostCrews + 1);
    plan_.threads = f.integer("threads", 1, 4096);
    plan_.bits = f.get<std::string>("bits");
    plan_.micro_batches = f.integer("micro_batches", 1, 1 << 20);
    plan_.by_hand = f.get<bool>("by_hand");
    if (f.at_end()) return;
    plan_.device = f.get<std::string>("device");
    plan_.alignment = f.integer("alignment", 1, 1 << 20);
    if (f.at_end()) return;
    plan_.seq_chunks = f.integer("seq_chunks", 1, plan_.micro_batches + 1);
    if (plan_.micro_batches % plan_.seq_chunks != 0) f.wrong("micro-batches of another number of chunks");
    if (f.at_end()) return;
    plan_.disk_blocks.bytes = f.integer("disk_block", kSectorBytes, 1 << 30);
    plan_.disk_blocks.under_way = f.integer("disk_queue", 1, kMostBlocksUnderWay + 1);
    if (plan_.disk_blocks.bytes % kSectorBytes != 0) f.wrong("a block of the disk is no number of sectors");
  }
  void arena(Fields& f) {
    Arena& arena = plan_.arena(static_cast<Tier>(f.one_of(kTierNames)));
    if (arena != Arena{}) f.wrong("this arena stands above already");
    arena.bytes = f.get<int64_t>("bytes");
    arena.persistent = f.get<int64_t>("persistent");
    arena.lower_bound = f.get<int64_t>("lower_bound");
    if (arena.bytes < 1 || arena.persistent < 0) f.wrong("an arena that cannot be");
  }
  void buffer(Fields& f) {
    Buffer b;
    b.holding = static_cast<Holding>(f.one_of(kHoldingNames));
    b.tier = static_cast<Tier>(f.one_of(kTierNames));
    b.bytes = f.get<int64_t>("bytes");
    b.offset = f.get<int64_t>("offset");
    const auto live = f.get<std::vector<int64_t>>("live");
    if (live.size() != 2 || b.bytes < 0 || b.offset < -1) f.wrong("a buffer that cannot be");
    b.first = static_cast<int>(live[0]);
    b.last = static_cast<int>(live[1]);
    plan_.buffers.push_back(b);
  }
  void value(Fields& f) {
    PlanValue v;
    v.type = parse_tensor_type(f.token());
    v.layout = parse_layout(f.get<std::string>("layout"), plan_.mesh, v.type.shape.rank());
    v.whole = f.get<Shape>("whole");
    v.buffer = f.integer("buffer", 0, static_cast<int64_t>(plan_.buffers.size()));
    if (const int part = f.integer("micro_batch", -1, plan_.micro_batches); part >= 0)
      v.part_of = std::make_shared<PartOf>(part_of(f, v.type.shape.rank(), part));
    if (!f.at_end()) v.offset = f.get<int64_t>("offset");
    const int64_t room = plan_.buffers[static_cast<size_t>(v.buffer)].bytes;
    if (v.offset < 0 || v.offset > room)
      f.wrong(fmt::format("offset={} is not in a buffer of {} bytes", v.offset, room));
    plan_.values.push_back(std::move(v));
  }
  PartOf part_of(Fields& f, int rank, int part) {
    PartOf out{.micro_batch = part};
    out.layout = parse_layout(f.get<std::string>("of_layout"),
                              with_micro_batches(plan_.mesh, plan_.micro_batches, plan_.seq_chunks), rank);
    out.whole = f.get<Shape>("of_whole");
    return out;
  }
  void input(Fields& f) {
    static constexpr std::array<std::string_view, 4> kRoles{"data", "parameter", "state", "schedule"};
    PlanInput in;
    in.role = static_cast<Role>(f.one_of(kRoles));
    in.name = f.string();
    in.value = f.integer("value", 0, values());
    in.init = parse_init(f.get<std::string>("init"), f);
    plan_.inputs.push_back(std::move(in));
  }
  void call(Fields& f) {
    if (!plan_.actions.empty()) f.wrong("calls stand above all actions");
    PlanCall c{.op = &op(f.token()), .in = types(f, "in"), .out = types(f, "out")};
    if (!is_communication(*c.op)) f.wrong(fmt::format("'{}' is no collective", c.op->name));
    c.attrs = c.op->parse_attrs(f.field("attrs"));
    plan_.calls.push_back(std::move(c));
  }
  static std::vector<TensorType> types(Fields& f, std::string_view key) {
    std::string_view text = f.field(key);
    if (!text.starts_with('[') || !text.ends_with(']')) f.wrong("expected types in brackets");
    text = text.substr(1, text.size() - 2);
    std::vector<TensorType> out;
    while (!text.empty()) {
      const size_t end = std::min(text.find(';'), text.size());
      out.push_back(parse_tensor_type(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return out;
  }
  void action_of_call(Fields& f, Action& a, std::string_view call) {
    int number = -1;
    const auto [end, status] = std::from_chars(call.data(), call.data() + call.size(), number);
    if (status != std::errc() || end != call.data() + call.size() || number < 0 ||
        number >= static_cast<int>(plan_.calls.size())) {
      f.wrong(fmt::format("no call '{}' stands above", call));
    }
    a.call = number;
    a.op = plan_.calls[static_cast<size_t>(number)].op;
    a.attrs = plan_.calls[static_cast<size_t>(number)].attrs;
  }
  void action(Fields& f) {
    Action a;
    a.lane = static_cast<Lane>(f.one_of(kLaneNames));
    const std::string_view what = f.token();
    constexpr std::string_view kCall = "call=";
    const bool of_call = what.starts_with(kCall);
    if (of_call) {
      action_of_call(f, a, what.substr(kCall.size()));
    } else {
      a.op = &op(what);
    }
    if (!of_call) a.kernel = f.get<std::string>("kernel");
    a.in = f.indices("in", plan_.values.size());
    a.out = f.indices("out", plan_.values.size());
    a.waits = f.indices("waits", plan_.actions.size());
    a.scratch = f.integer("scratch", -1, static_cast<int64_t>(plan_.buffers.size()));
    a.scope = f.get<std::string>("scope");
    if (!of_call) a.attrs = a.op->parse_attrs(f.field("attrs"));
    if (const Lane lane = lane_of(*a.op, a.attrs, a.lane == Lane::kHost); a.lane != lane) {
      f.wrong(
          fmt::format("'{}' is an action of the {} lane, not of '{}'", a.op->name, to_string(lane), to_string(a.lane)));
    }
    plan_.actions.push_back(std::move(a));
  }
  void output(Fields& f) {
    PlanOutput out;
    out.name = f.string();
    out.value = f.integer("value", 0, values());
    out.updates = f.integer("updates", -1, values());
    plan_.outputs.push_back(std::move(out));
  }
  int64_t values() const { return static_cast<int64_t>(plan_.values.size()); }

  ExecutionPlan plan_;
  bool begun_ = false;
};

std::string text_of(const PlanCall& c) {
  return fmt::format("call {} in={} out={} attrs={}\n", c.op->name, list(c.in), list(c.out), c.attrs.text());
}

// Writes the records of a plan to the end of a text. What many values share is written once, and then copied.
class PlanWriter {
 public:
  PlanWriter(const ExecutionPlan& plan, std::string& out) : plan_(plan), out_(out) {}

  // `after`: is called after some records, and may take the text away.
  template <class After>
  void write(After after) {
    head();
    for (const Buffer& b : plan_.buffers) {
      add("buffer {} {} bytes={} offset={} live=[{},{}]\n", to_string(b.holding), to_string(b.tier), b.bytes, b.offset,
          b.first, b.last);
      after();
    }
    for (const PlanValue& v : plan_.values) {
      value(v);
      after();
    }
    for (const PlanInput& in : plan_.inputs) {
      add("input {} {} value={} init=\"{}\"\n", to_string(in.role), quote(in.name), in.value, to_string(in.init));
    }
    for (const PlanCall& c : plan_.calls) out_ += text_of(c);
    for (const Action& a : plan_.actions) {
      action(a, a.call >= 0);
      after();
    }
    for (const PlanOutput& o : plan_.outputs) add("output {} value={} updates={}\n", quote(o.name), o.value, o.updates);
  }

  // `by_call`: says its call instead of its op.
  void action(const Action& a, bool by_call) {
    out_ += "action ";
    out_ += to_string(a.lane);
    if (by_call) {
      add(" call={}", a.call);
    } else {
      add(" {} kernel=", a.op->name);
      add_quoted(a.kernel);
    }
    numbers(" in=[", a.in);
    numbers(" out=[", a.out);
    numbers(" waits=[", a.waits);
    add(" scratch={} scope=", a.scratch);
    add_quoted(a.scope);
    if (!by_call) {
      out_ += " attrs=";
      out_ += a.attrs.text();
    }
    out_ += '\n';
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    append_text(out_, text, std::forward<Args>(args)...);
  }

  void head() {
    add("plan 2 {} mesh=\"{}\" crew={} crews={} threads={} bits={} micro_batches={} by_hand={}", quote(plan_.name),
        to_string(plan_.mesh), plan_.crew, plan_.crews, plan_.threads, quote(plan_.bits), plan_.micro_batches,
        plan_.by_hand);
    const bool has_blocks = plan_.disk_blocks != DiskBlocks();
    if (plan_.device != "cpu" || plan_.seq_chunks > 1 || has_blocks)
      add(" device={} alignment={}", quote(plan_.device), plan_.alignment);
    if (plan_.seq_chunks > 1 || has_blocks) add(" seq_chunks={}", plan_.seq_chunks);
    if (has_blocks) add(" disk_block={} disk_queue={}", plan_.disk_blocks.bytes, plan_.disk_blocks.under_way);
    out_ += '\n';
    for (const Tier tier : kEveryTier) {
      const Arena& arena = plan_.arena(tier);
      if (arena.bytes == 0) continue;
      add("arena {} bytes={} persistent={} lower_bound={}\n", to_string(tier), arena.bytes, arena.persistent,
          arena.lower_bound);
    }
  }

  void value(const PlanValue& v) {
    add("value {} layout=\"", to_string(v.type));
    out_ += shared(&*v.layout, [&] { return to_string(v.layout, plan_.mesh); });
    out_ += "\" whole=";
    out_ += shared(&*v.whole, [&] { return to_string(v.whole); });
    add(" buffer={} micro_batch={}", v.buffer, v.part_of ? v.part_of->micro_batch : -1);
    if (v.part_of) {
      const PartOf& part = *v.part_of;
      out_ += shared(&part, [&] {
        const Mesh all = with_micro_batches(plan_.mesh, plan_.micro_batches, plan_.seq_chunks);
        return fmt::format(" of_layout=\"{}\" of_whole={}", to_string(part.layout, all), to_string(part.whole));
      });
    }
    if (v.offset > 0) add(" offset={}", v.offset);
    out_ += '\n';
  }

  void numbers(std::string_view name, std::span<const int> all) {
    out_ += name;
    for (const int each : all) {
      const fmt::format_int digits(each);
      out_.append(digits.data(), digits.size());
      out_ += ',';
    }
    if (all.empty())
      out_ += ']';
    else
      out_.back() = ']';
  }

  void add_quoted(std::string_view text) {
    out_ += shared(text.data(), [&] { return quote(text); });
  }

  template <class Make>
  const std::string& shared(const void* at, Make make) {
    const auto [known, is_new] = shared_.try_emplace(at);
    if (is_new) known->second = make();
    return known->second;
  }

  const ExecutionPlan& plan_;
  std::string& out_;
  std::unordered_map<const void*, std::string> shared_;  // by where it lies
};

}  // namespace

std::string_view to_string(Lane lane) {
  return kLaneNames[static_cast<size_t>(lane)];
}
std::string_view to_string(Holding holding) {
  return kHoldingNames[static_cast<size_t>(holding)];
}

std::string to_string(const ExecutionPlan& plan) {
  std::string out;
  PlanWriter(plan, out).write([] {});
  return out;
}

int64_t bytes_saved_by_calls(const ExecutionPlan& plan) {
  std::string text;
  PlanWriter writer(plan, text);
  const auto bytes = [&](const Action& action, bool by_call) {
    text.clear();
    writer.action(action, by_call);
    return static_cast<int64_t>(text.size());
  };
  int64_t out = 0;
  for (const Action& a : plan.actions) {
    if (a.call >= 0) out += bytes(a, false) - bytes(a, true);
  }
  for (const PlanCall& c : plan.calls) out -= static_cast<int64_t>(text_of(c).size());
  return out;
}

ExecutionPlan parse_plan(std::string_view text) {
  PlanReader reader;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    ++number;
    if (!line.empty()) {
      Fields fields(line, number);
      try {
        reader.line(fields);
        fields.done();
      } catch (const Error& e) {  // what a mesh, a layout or a type says does not know the line
        if (e.text().starts_with(Fields::kWhere)) throw;
        fields.wrong(e.text());
      }
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.take();
}

uint64_t hash(const ExecutionPlan& plan) {
  constexpr size_t kRoom = 1 << 16;  // bytes of text at a time
  TextHash out;
  std::string room;
  PlanWriter(plan, room).write([&] {
    if (room.size() < kRoom) return;
    out.add(room);
    room.clear();
  });
  out.add(room);
  return out.value();
}

}  // namespace trireme

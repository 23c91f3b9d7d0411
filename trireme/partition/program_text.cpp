// The text form of a program (ir/program.h): its graph, with layouts as notes; read back to an equal program.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/mesh/mesh.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/registry.h"
#include "trireme/partition/partition.h"

namespace trireme {
namespace {

// "; over dp, ranks {0,1} {2,3}": whom a collective joins, of many groups the first ones; "" of what joins nobody.
std::string joined_ranks(const Program& program, const Node& node) {
  constexpr int64_t kShown = 8;
  if (!is_communication(def_of(node))) return "";
  const RankGroups groups = groups_of(node);
  if (!groups.why_not(program.mesh).empty()) return "";  // for verify to say
  const int64_t count =
      (groups.ranks.empty() ? program.mesh.devices() : static_cast<int64_t>(groups.ranks.size())) / groups.size;
  std::string out = groups.ranks.empty() ? fmt::format("; over {}, ranks", groups.text(program.mesh)) : "; ranks";
  int64_t shown = 0;
  for (int64_t rank = 0; rank < program.mesh.devices() && shown < std::min(count, kShown); ++rank) {
    const std::vector<int64_t> group = groups.of(rank, program.mesh);
    if (group.empty() || *std::ranges::min_element(group) != rank) continue;
    out += fmt::format(" {{{}}}", joined_text(group, ","));
    ++shown;
  }
  return count > kShown ? out + fmt::format(" and {} more groups", count - kShown) : out;
}

// "[dp, -] of [8,3]", and of a part of a batch, "part 1 of [dp, -] of [16,3]".
std::string lies_text(const Program& program, ValueId id) {
  const auto at = static_cast<size_t>(id);
  std::string out = fmt::format("{} of {}", to_string(program.layouts[at], program.mesh), to_string(program.whole[at]));
  const auto part = program.part_of(id);
  if (part == nullptr) return out;
  const Mesh mesh = with_micro_batches(program);
  return out +
         fmt::format(" part {} of {} of {}", part->micro_batch, to_string(part->layout, mesh), to_string(part->whole));
}

// The values that are made in the line that makes this one first.
std::vector<ValueId> made_with(const Graph& graph, ValueId first) {
  const NodeId producer = graph.value(first).producer;
  if (producer < 0) return {first};
  return graph.node(producer).outputs;
}

// Calls fn(number, line) for each line of a text.
template <class Fn>
void each_text_line(std::string_view text, Fn&& fn) {
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    fn(number, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

class ProgramReader {
 public:
  Program read(std::string_view text) {
    std::string graph;
    each_text_line(text, [&](int number, std::string_view line) {
      number_ = number;
      const size_t comment = comment_of(line);
      if (line.starts_with("mesh ")) {
        read_mesh(line.substr(5, comment == std::string_view::npos ? comment : comment - 5));
        line = {};  // so that the graph's lines keep their numbers
      } else if (line.starts_with('%')) {
        notes_.push_back({number, id_of(line), line.substr(std::min(comment, line.size()))});
      }
      graph += line.substr(0, comment);
      graph += '\n';
    });
    require(has_mesh_, "program text: no line says the mesh, like mesh \"dp=2\"");
    program_.graph = parse_graph(graph, find_op_base);
    for (const Value& value : program_.graph.values()) {
      program_.layouts.push_back(Layout::replicated(value.type->shape.rank()));
      program_.whole.push_back(value.type->shape);
    }
    ValueId next = 0;
    for (const Note& note : notes_) {
      number_ = note.number;
      if (note.first != next)
        wrong(fmt::format("%{} stands where %{} is made; number values in their order", note.first, next));
      const std::vector<ValueId> values = made_with(program_.graph, next);
      next += static_cast<ValueId>(values.size());
      if (note.text.starts_with("//")) read_note(note.text.substr(2), values);
    }
    return std::move(program_);
  }

 private:
  // How the values that a line makes lie.
  struct Note {
    int number = 0;
    ValueId first = kNoValue;
    std::string_view text;
  };

  [[noreturn]] void wrong(std::string_view what) const {
    fail(ErrorKind::kInvalidArgument, "program text, line {}: {}", number_, what);
  }

  // Where "//" stands outside of quotes.
  static size_t comment_of(std::string_view line) {
    bool in_quotes = false;
    for (size_t at = 0; at + 1 < line.size(); ++at) {
      if (in_quotes && line[at] == '\\') {
        ++at;
      } else if (line[at] == '"') {
        in_quotes = !in_quotes;
      } else if (!in_quotes && line.substr(at, 2) == "//") {
        return at;
      }
    }
    return std::string_view::npos;
  }

  ValueId id_of(std::string_view line) const {
    ValueId id = kNoValue;
    const auto [end, status] = std::from_chars(line.data() + 1, line.data() + line.size(), id);
    if (status != std::errc() || id < 0) wrong("expected a value's number after '%'");
    return id;
  }

  int64_t count_of(std::string_view text) const {
    int64_t count = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (status != std::errc() || end != text.data() + text.size() || count < 0 || count > 1 << 20) {
      wrong(fmt::format("expected a number, found '{}'", text));
    }
    return count;
  }

  // "dp=2" micro_batches 4 seq_chunks 2 by hand
  void read_mesh(std::string_view text) {
    const size_t close = text.find('"', 1);
    if (has_mesh_ || !text.starts_with('"') || close == std::string_view::npos)
      wrong("expected one mesh, like mesh \"dp=2\"");
    has_mesh_ = true;
    program_.mesh = parse_mesh(text.substr(1, close - 1));
    text = trimmed(text.substr(close + 1));
    program_.micro_batches = read_count(text, "micro_batches ");
    program_.seq_chunks = read_count(text, "seq_chunks ");
    if (program_.micro_batches % program_.seq_chunks != 0) wrong("micro-batches of another number of chunks");
    program_.by_hand = text == "by hand";
    if (!text.empty() && !program_.by_hand)
      wrong(fmt::format("expected 'micro_batches' or 'by hand', found '{}'", text));
  }

  // 1 where it is not given.
  int64_t read_count(std::string_view& text, std::string_view name) {
    if (!text.starts_with(name)) return 1;
    text.remove_prefix(name.size());
    const size_t end = std::min(text.find(' '), text.size());
    const int64_t out = count_of(text.substr(0, end));
    if (out < 1) wrong(fmt::format("{}0; it is 1 or more", name));
    text = trimmed(text.substr(end));
    return out;
  }

  static std::string_view trimmed(std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return text;
  }

  // What follows the last "]" of a layout and its partial sums: " of ".
  std::string_view take_until_of(std::string_view& text) const {
    const size_t end = text.find(" of ");
    if (end == std::string_view::npos)
      wrong(fmt::format("expected a layout of a whole shape, like [dp, -] of [8,3], found '{}'", text));
    const std::string_view out = trimmed(text.substr(0, end));
    text.remove_prefix(end + 4);
    return out;
  }

  Shape take_shape(std::string_view& text) const {
    const size_t end = text.find(']');
    Shape out;
    if (end == std::string_view::npos || !detail::read_attr(text.substr(0, end + 1), out)) {
      wrong(fmt::format("expected a shape like [8,3], found '{}'", text));
    }
    text = trimmed(text.substr(end + 1));
    return out;
  }

  Layout checked(std::string_view text, const Shape& whole, const Mesh& mesh) const {
    Layout layout = parse_layout(text, mesh, whole.rank());
    if (!fits(layout, whole, mesh, Parts::kUneven)) wrong(fmt::format("{} does not fit {}", text, to_string(whole)));
    return layout;
  }

  // "[dp] of [4] | [-, -] of [4,8]; over dp"
  void read_note(std::string_view text, const std::vector<ValueId>& values) {
    text = trimmed(text.substr(0, text.find(';')));
    if (text.find(" of ") == std::string_view::npos) return;  // a word to the reader
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t end = std::min(text.find('|'), text.size());
      if ((end == text.size()) != (i + 1 == values.size()))
        wrong("expected a layout for each value, with '|' between them");
      read_value(values[i], trimmed(text.substr(0, end)));
      text = trimmed(text.substr(std::min(end + 1, text.size())));
    }
  }

  void read_value(ValueId id, std::string_view text) {
    const auto at = static_cast<size_t>(id);
    const std::string_view layout = take_until_of(text);
    program_.whole[at] = take_shape(text);
    if (program_.whole[at]->rank() != program_.graph.type(id).shape.rank())
      wrong("a whole of another number of dimensions");
    program_.layouts[at] = checked(layout, program_.whole[at], program_.mesh);
    if (text.empty()) return;
    if (!text.starts_with("part ")) wrong(fmt::format("expected 'part', found '{}'", text));
    text.remove_prefix(5);
    PartOf part{.micro_batch = count_of(take_until_of(text))};
    const std::string_view whole_layout = take_until_of(text);
    part.whole = take_shape(text);
    if (part.micro_batch >= program_.micro_batches || !text.empty()) wrong("a part of a micro-batch that there is not");
    part.layout = checked(whole_layout, part.whole, with_micro_batches(program_));
    program_.set_part_of(id, std::make_shared<PartOf>(std::move(part)));
  }

  Program program_;
  bool has_mesh_ = false;
  int number_ = 0;
  std::vector<Note> notes_;
};

}  // namespace

std::string to_string(const Program& program) {
  std::string out = fmt::format("mesh \"{}\"", to_string(program.mesh));
  if (program.micro_batches > 1) out += fmt::format(" micro_batches {}", program.micro_batches);
  if (program.seq_chunks > 1) out += fmt::format(" seq_chunks {}", program.seq_chunks);
  out += program.by_hand ? " by hand\n" : "\n";
  const std::string text = to_string(program.graph);
  each_text_line(text, [&](int, std::string_view line) {
    out += line;
    if (line.starts_with('%')) {
      const auto first = static_cast<ValueId>(std::stoll(std::string(line.substr(1, line.find(':') - 1))));
      std::string lies;
      for (const ValueId id : made_with(program.graph, first)) {
        lies += (lies.empty() ? "  // " : " | ") + lies_text(program, id);
      }
      out += lies;
      const NodeId producer = program.graph.value(first).producer;
      if (producer >= 0) out += joined_ranks(program, program.graph.node(producer));
    }
    out += '\n';
  });
  return out;
}

Program parse_program(std::string_view text) {
  return ProgramReader().read(text);
}

}  // namespace trireme

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/planner/certificate/certificate.h"
#include "trireme/planner/certificate/certificate_fields_impl.h"

namespace trireme {
namespace {

constexpr std::string_view kCertificateLine = "trireme certificate 11";

std::string part_numbers(const CertifiedPart& part) {
  std::vector<int64_t> numbers;
  for (const auto field : kCertifiedPartFields) numbers.push_back(part.*field);
  return fmt::format("{}", fmt::join(numbers, ","));
}

std::string_view part_name(size_t part, size_t parts) {
  return part == 0 ? "before" : part + 1 == parts ? "after" : "block";
}

// The cut of a table of one data parallel rank has no dp, zero and place of its own.
std::string cut_words(const CertifiedCut& cut, bool is_alone) {
  std::string out = fmt::format("tp={} cp={} ep={} sp={} vocabulary={} rows={} recompute={} kept_slices={} keep={}",
                                cut.tp, cut.cp, cut.ep, cut.sp ? 1 : 0, cut.vocabulary ? 1 : 0, cut.rows,
                                to_string(cut.recompute), cut.kept_slices ? 1 : 0, to_string(cut.keep));
  if (!is_alone)
    out += fmt::format(" dp={} zero={} state={} update={}", cut.dp, cut.zero, to_string(cut.place.state),
                       to_string(cut.place.update));
  return out;
}

void add_tables(const std::vector<CertifiedTable>& tables, bool is_alone, std::string& out) {
  for (const CertifiedTable& table : tables) {
    out += fmt::format("{} {}", is_alone ? "alone" : "prices", cut_words(table.cut, is_alone));
    if (table.is_refused) {
      out += " refused\n";
      continue;
    }
    out += fmt::format(" joined={} crossing={}", table.is_joined ? 1 : 0, table.crossing);
    for (size_t part = 0; part < table.parts.size(); ++part)
      out += fmt::format(" {}={}", part_name(part, table.parts.size()), part_numbers(table.parts[part]));
    out += "\n";
  }
}

template <class Struct, size_t n>
std::string named_numbers(const Struct& of, const CertifiedNames<Struct, n>& names) {
  std::string out;
  for (const auto& [name, field] : names) out += fmt::format(" {}={}", name, of.*field);
  return out;
}

// The lines of a text, word by word.
class CertificateReader {
 public:
  explicit CertificateReader(std::string_view text) : rest_(text) {}

  bool is_at_end() const { return rest_.empty(); }
  int line() const { return line_; }

  void next_line() {
    const size_t end = rest_.find('\n');
    words_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++line_;
  }
  // The word that the next line begins with.
  std::string_view next_kind() const { return rest_.substr(0, rest_.find_first_of(" \n")); }

  [[noreturn]] void wrong(std::string_view what) const {
    fail(ErrorKind::kInvalidArgument, "certificate, line {}: {}", line_, what);
  }

  // What follows these words on the next line.
  std::string_view line_of(std::string_view words) {
    next_line();
    if (!words_.starts_with(words) || words_.size() <= words.size() + 1 || words_[words.size()] != ' ')
      wrong(fmt::format("'{}' should be '{} ...'", words_.substr(0, 60), words));
    words_.remove_prefix(words.size() + 1);
    return words_;
  }
  void end_line() const {
    if (!words_.empty()) wrong(fmt::format("'{}' is too many", words_.substr(0, 60)));
  }

  std::string_view word() {
    const size_t space = std::min(words_.find(' '), words_.size());
    const std::string_view out = words_.substr(0, space);
    words_.remove_prefix(std::min(space + 1, words_.size()));
    return out;
  }
  std::string rest_of_line() {
    std::string out(words_);
    words_ = {};
    return out;
  }
  bool takes(std::string_view expected) {
    if (words_ != expected) return false;
    words_ = {};
    return true;
  }
  std::string_view value(std::string_view name) {
    const std::string_view out = word();
    if (out.size() <= name.size() || !out.starts_with(name) || out[name.size()] != '=')
      wrong(fmt::format("'{}' should be {}=...", out.substr(0, 60), name));
    return out.substr(name.size() + 1);
  }
  int64_t number_in(std::string_view text) const {
    int64_t out = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
    // One text for one number, so that what is read prints as it was.
    if (status != std::errc() || fmt::format("{}", out) != text || out < 0 || out > kCertifiedMost)
      wrong(fmt::format("'{}' is no whole number from 0 to {}", text.substr(0, 60), kCertifiedMost));
    return out;
  }
  int64_t number(std::string_view name) { return number_in(value(name)); }
  int64_t number_from(std::string_view name, int64_t least, int64_t most) {
    const int64_t out = number(name);
    if (out < least || out > most) wrong(fmt::format("{}={}; it must be {} to {}", name, out, least, most));
    return out;
  }
  std::vector<int64_t> numbers(std::string_view name) {
    std::vector<int64_t> out;
    std::string_view list = value(name);
    while (true) {
      const size_t comma = std::min(list.find(','), list.size());
      out.push_back(number_in(list.substr(0, comma)));
      if (comma == list.size()) return out;
      list.remove_prefix(comma + 1);
    }
  }
  template <class Struct, size_t n>
  void named_numbers(Struct& into, const CertifiedNames<Struct, n>& names) {
    for (const auto& [name, field] : names) into.*field = number(name);
  }

 private:
  std::string_view rest_, words_;
  int line_ = 0;
};

void read_part(CertificateReader& reader, std::string_view name, CertifiedPart& into) {
  const std::vector<int64_t> numbers = reader.numbers(name);
  constexpr size_t kFields = kCertifiedPartFields.size();
  if (numbers.size() != kFields) reader.wrong(fmt::format("{} has {} numbers, not {}", name, numbers.size(), kFields));
  for (size_t i = 0; i < kFields; ++i) into.*kCertifiedPartFields[i] = numbers[i];
}

// One of these by its name.
template <class Choice, size_t n>
Choice read_choice(CertificateReader& reader, std::string_view name, const std::array<Choice, n>& choices) {
  const std::string_view text = reader.value(name);
  std::string names;
  for (size_t i = 0; i < n; ++i) {
    if (to_string(choices[i]) == text) return choices[i];
    names += fmt::format("{}{}", i == 0 ? "" : i + 1 == n ? " or " : ", ", to_string(choices[i]));
  }
  reader.wrong(fmt::format("{}={}; it must be {}", name, text.substr(0, 60), names));
}

CertifiedCut read_cut(CertificateReader& reader, bool is_alone) {
  CertifiedCut out;
  out.tp = reader.number_from("tp", 1, kCertifiedRanks);
  out.cp = reader.number_from("cp", 1, kCertifiedRanks);
  out.ep = reader.number_from("ep", 1, kCertifiedRanks);
  out.sp = reader.number_from("sp", 0, 1) == 1;
  out.vocabulary = reader.number_from("vocabulary", 0, 1) == 1;
  out.rows = reader.number_from("rows", 1, kCertifiedBatch);
  out.recompute = read_choice(reader, "recompute", kWayRecompute);
  out.kept_slices = reader.number_from("kept_slices", 0, 1) == 1;
  out.keep = read_choice(reader, "keep", kEveryTier);
  if (is_alone) return out;
  out.dp = reader.number_from("dp", 1, kCertifiedRanks);
  out.zero = reader.number_from("zero", 0, 3);
  out.place.state = read_choice(reader, "state", kEveryTier);
  out.place.update = read_choice(reader, "update", kEveryTier);
  if (out.place.update == Tier::kDisk || (out.place.update == Tier::kHost && out.place.state == Tier::kDevice))
    reader.wrong("updates run on the device, or on the host with their state elsewhere than on the device");
  return out;
}

// Each of a table of what stands before the blocks, so many kinds of blocks, and what stands after.
std::vector<CertifiedTable> read_tables(CertificateReader& reader, bool is_alone, size_t kinds) {
  const std::string_view kind = is_alone ? "alone" : "prices";
  std::vector<CertifiedTable> out;
  while (reader.next_kind() == kind) {
    reader.line_of(kind);
    CertifiedTable table;
    table.cut = read_cut(reader, is_alone);
    if (!out.empty() && !(out.back().cut < table.cut))
      reader.wrong(fmt::format("the tables '{}' are not in ascending order of their cuts, each once", kind));
    table.is_refused = reader.takes("refused");
    if (!table.is_refused) {
      table.is_joined = reader.number_from("joined", 0, 1) == 1;
      table.crossing = reader.number("crossing");
      table.parts.resize(kinds + 2);
      for (size_t part = 0; part < table.parts.size(); ++part)
        read_part(reader, part_name(part, table.parts.size()), table.parts[part]);
    }
    reader.end_line();
    out.push_back(std::move(table));
  }
  return out;
}

CertifiedPlan read_plan(CertificateReader& reader) {
  reader.line_of("best");
  CertifiedPlan out;
  out.way.pp = reader.number_from("pp", 1, kCertifiedRanks);
  out.way.micro_batches = reader.number_from("micro_batches", 1, kCertifiedBatch);
  out.way.schedule = read_choice(reader, "schedule", kWaySchedules);
  out.way.virtual_stages = reader.number_from("virtual_stages", 1, kCertifiedLayers);
  out.way.cut = read_cut(reader, false);
  out.step_ps = reader.number("step_ps");
  out.begins = reader.numbers("begins");
  out.crew_bytes = reader.numbers("crew_bytes");
  reader.end_line();
  return out;
}

std::string read_word(CertificateReader& reader, std::string_view kind) {
  reader.line_of(kind);
  std::string out(reader.word());
  reader.end_line();
  return out;
}

int64_t read_number(CertificateReader& reader, std::string_view kind, int64_t least, int64_t most) {
  reader.line_of(kind);
  const int64_t out = reader.number_in(reader.word());
  if (out < least || out > most) reader.wrong(fmt::format("{} {}; it must be {} to {}", kind, out, least, most));
  reader.end_line();
  return out;
}

void read_model(CertificateReader& reader, CertifiedModel& model) {
  reader.line_of("model");
  reader.named_numbers(model, kCertifiedModelNames);
  reader.end_line();
  if (model.layers < 1 || model.layers > kCertifiedLayers)
    reader.wrong(fmt::format("{} layers; it must be 1 to {}", model.layers, kCertifiedLayers));
  if (model.batch < 1 || model.batch > kCertifiedBatch || model.sequence < 1)
    reader.wrong(fmt::format("a batch of {} samples of {} positions", model.batch, model.sequence));
  if (model.weights > 1 || model.positions > 1) reader.wrong("weights and positions must be 0 or 1");
}

// "0x3,1x58": three blocks of one kind, then 58 of another. Each run is as long as it can be.
std::vector<CertifiedRun> read_runs(CertificateReader& reader, int64_t layers) {
  reader.line_of("runs");
  std::vector<CertifiedRun> out;
  int64_t kinds = 0, blocks = 0;
  for (std::string_view list = reader.word(); !list.empty();) {
    const std::string_view run = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), run.size() + 1));
    const size_t times = std::min(run.find('x'), run.size());
    const CertifiedRun read{reader.number_in(run.substr(0, times)),
                            reader.number_in(run.substr(std::min(times + 1, run.size())))};
    const bool is_longer = !out.empty() && out.back().kind == read.kind;
    if (read.kind > kinds || read.kind >= kCertifiedKinds || is_longer || read.blocks < 1 || read.blocks > layers)
      reader.wrong(fmt::format("the run '{}' of blocks is none that may stand there", run));
    out.push_back(read);
    kinds = std::max(kinds, read.kind + 1);
    blocks += read.blocks;
    if (blocks > layers) break;
  }
  if (blocks != layers) reader.wrong(fmt::format("the runs have other than the model's {} layers", layers));
  reader.end_line();
  return out;
}

std::vector<std::string> read_scopes(CertificateReader& reader, std::string_view kind) {
  std::vector<std::string> out;
  while (reader.next_kind() == kind) out.push_back(read_word(reader, kind));
  return out;
}

// Its lines without the last, whose checksum is theirs.
std::string_view lines_in(std::string_view text) {
  constexpr std::string_view kEnd = "end ";
  constexpr size_t kEndSize = kEnd.size() + 64 + 1;
  require(text.starts_with("trireme certificate "), "certificate: '{}' is not '{}': this is not a certificate",
          text.substr(0, std::min<size_t>(text.find('\n'), 40)), kCertificateLine);
  const std::string_view first = text.substr(0, text.find('\n'));
  require(first == kCertificateLine, "certificate: '{}' is not '{}': this is another version of the format; plan again",
          first.substr(0, 40), kCertificateLine);
  require(text.size() > kEndSize && text.ends_with('\n') && text.substr(text.size() - kEndSize).starts_with(kEnd),
          "certificate: it does not end with a line 'end' and a checksum: part of it is missing");
  const std::string_view lines = text.substr(0, text.size() - kEndSize);
  require(sealed_certificate(lines) == text,
          "certificate: its checksum does not match its lines: it was changed after it was made");
  return lines;
}

}  // namespace

std::string sealed_certificate(std::string_view lines) {
  return fmt::format("{}end {}\n", lines, sha256_hex(lines));
}

bool is_certificate(std::string_view text) {
  return text.starts_with("trireme certificate");
}

std::string to_string(const Certificate& c) {
  std::string out = fmt::format(
      "{}\nmade_by {}\ngraph {}\nmachine {} {}\nranks {}\nthreads {}\nmemory {}\nhost {}\ndisk {}\n", kCertificateLine,
      c.version, c.graph, c.machine_hash, c.machine, c.ranks, c.threads, c.memory, c.host, c.disk);
  out += "model" + named_numbers(c.model, kCertifiedModelNames) + "\n";
  for (const std::string& scope : c.before) out += fmt::format("before {}\n", scope);
  std::vector<std::string> runs;
  for (const CertifiedRun& run : c.runs) runs.push_back(fmt::format("{}x{}", run.kind, run.blocks));
  out += fmt::format("blocks {}\nruns {}\n", c.blocks, fmt::join(runs, ","));
  for (const std::string& scope : c.after) out += fmt::format("after {}\n", scope);
  out += fmt::format("top {}\n", c.top);
  for (const CertifiedPlan& plan : c.best) {
    out += fmt::format(
        "best pp={} micro_batches={} schedule={} virtual_stages={} {} step_ps={} begins={} crew_bytes={}\n",
        plan.way.pp, plan.way.micro_batches, to_string(plan.way.schedule), plan.way.virtual_stages,
        cut_words(plan.way.cut, false), plan.step_ps, fmt::join(plan.begins, ","), fmt::join(plan.crew_bytes, ","));
  }
  out += "ledger" + named_numbers(c.ledger, kCertifiedLedgerNames) + "\n";
  add_tables(c.alone, true, out);
  add_tables(c.prices, false, out);
  return sealed_certificate(out);
}

Certificate parse_certificate(std::string_view text) {
  CertificateReader reader(lines_in(text));
  reader.next_line();
  Certificate out;
  out.version = read_word(reader, "made_by");
  out.graph = read_word(reader, "graph");
  reader.line_of("machine");
  out.machine_hash = reader.word();
  out.machine = reader.rest_of_line();
  out.ranks = read_number(reader, "ranks", 1, kCertifiedRanks);
  out.threads = read_number(reader, "threads", 1, kCertifiedRanks);
  out.memory = read_number(reader, "memory", 0, kCertifiedMost);
  out.host = read_number(reader, "host", 0, kCertifiedMost);
  out.disk = read_number(reader, "disk", 0, kCertifiedMost);
  read_model(reader, out.model);
  out.before = read_scopes(reader, "before");
  out.blocks = read_word(reader, "blocks");
  out.runs = read_runs(reader, out.model.layers);
  out.after = read_scopes(reader, "after");
  size_t kinds = 0;
  for (const CertifiedRun& run : out.runs) kinds = std::max(kinds, static_cast<size_t>(run.kind) + 1);
  out.top = read_number(reader, "top", 1, kCertifiedBatch);
  while (reader.next_kind() == "best") out.best.push_back(read_plan(reader));
  reader.line_of("ledger");
  reader.named_numbers(out.ledger, kCertifiedLedgerNames);
  reader.end_line();
  out.alone = read_tables(reader, true, kinds);
  out.prices = read_tables(reader, false, kinds);
  if (!reader.is_at_end()) {
    reader.next_line();
    reader.wrong("it should be a table, and those of one data parallel rank come first");
  }
  require(to_string(out) == text,
          "certificate: its lines are not in the order or form in which a certificate is written");
  return out;
}

}  // namespace trireme

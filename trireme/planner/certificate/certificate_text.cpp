#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/planner/certificate/certificate.h"
#include "trireme/planner/certificate/certificate_fields_impl.h"
#include "trireme/planner/certificate/line_reader_impl.h"
#include "trireme/planner/certificate/table_text_impl.h"

namespace trireme {
namespace {

constexpr std::string_view kCertificateLine = "trireme certificate 16";

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

// Each of a table of what stands before the blocks, so many kinds of blocks, and what stands after.
std::vector<CertifiedTable> read_tables(LineReader& reader, bool is_alone, size_t kinds) {
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

CertifiedPlan read_plan(LineReader& reader) {
  reader.line_of("best");
  CertifiedPlan out;
  out.way.pp = reader.number_from("pp", 1, kCertifiedRanks);
  out.way.micro_batches = reader.number_from("micro_batches", 1, kCertifiedBatch);
  out.way.schedule = reader.choice("schedule", kWaySchedules);
  out.way.virtual_stages = reader.number_from("virtual_stages", 1, kCertifiedLayers);
  out.way.cut = read_cut(reader, false);
  out.step_ps = reader.number("step_ps");
  out.begins = reader.numbers("begins");
  out.crew_bytes = reader.numbers("crew_bytes");
  reader.end_line();
  return out;
}

std::string read_word(LineReader& reader, std::string_view kind) {
  reader.line_of(kind);
  std::string out(reader.word());
  reader.end_line();
  return out;
}

int64_t read_number(LineReader& reader, std::string_view kind, int64_t least, int64_t most) {
  reader.line_of(kind);
  const int64_t out = reader.number_in(reader.word());
  if (out < least || out > most) reader.wrong(fmt::format("{} {}; it must be {} to {}", kind, out, least, most));
  reader.end_line();
  return out;
}

void read_model(LineReader& reader, CertifiedModel& model) {
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
std::vector<CertifiedRun> read_runs(LineReader& reader, int64_t layers) {
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

std::vector<std::string> read_scopes(LineReader& reader, std::string_view kind) {
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
  return sealed(lines);
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
  out += fmt::format("blocks {}\nruns {}\n", c.blocks, joined_text(runs, ","));
  for (const std::string& scope : c.after) out += fmt::format("after {}\n", scope);
  out += fmt::format("top {}\n", c.top);
  for (const CertifiedPlan& plan : c.best) {
    out += fmt::format(
        "best pp={} micro_batches={} schedule={} virtual_stages={} {} step_ps={} begins={} crew_bytes={}\n",
        plan.way.pp, plan.way.micro_batches, to_string(plan.way.schedule), plan.way.virtual_stages,
        cut_words(plan.way.cut, false), plan.step_ps, joined_text(plan.begins, ","), joined_text(plan.crew_bytes, ","));
  }
  out += "ledger" + named_numbers(c.ledger, kCertifiedLedgerNames) + "\n";
  add_tables(c.alone, true, out);
  add_tables(c.prices, false, out);
  return sealed_certificate(out);
}

Certificate parse_certificate(std::string_view text) {
  LineReader reader(lines_in(text), "certificate");
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

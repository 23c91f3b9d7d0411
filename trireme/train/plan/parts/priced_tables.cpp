#include "trireme/train/plan/parts/priced_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/hash.h"
#include "trireme/mesh/machine.h"
#include "trireme/parallel/strategy/strategy_file.h"
#include "trireme/planner/certificate/certificate_fields_impl.h"
#include "trireme/planner/certificate/line_reader_impl.h"
#include "trireme/planner/certificate/table_text_impl.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/parts/certified_tables.h"
#include "trireme/train/step/session/tune.h"
#include "trireme/version.h"

namespace trireme {
namespace {

constexpr std::string_view kTablesLine = "trireme tables 3";
constexpr std::string_view kProgram = "program", kKey = "key", kTable = "table", kRefused = "refused";

// Figures beyond this are not kept: what is computed with them stays far from the end of the numbers.
constexpr int64_t kMostKept = int64_t{1} << 50;

// Of this process, bit by bit: tables are what its code makes of a job.
const std::string& this_program() {
  static const std::string out = fmt::format("{} {:016x}", kVersion, hash64(MappedFile("/proc/self/exe").bytes()));
  return out;
}

// On one line.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && ++i < text.size();
    out += i == text.size() ? '\\' : is_escape && text[i] == 'n' ? '\n' : text[i];
  }
  return out;
}

bool is_kept(const PricedTable& table) {
  if (!table.prices) return true;
  const auto is_small = [](int64_t figure) { return -kMostKept <= figure && figure <= kMostKept; };
  const CertifiedTable figures = certified_prices({}, table.prices);
  return is_small(figures.crossing) && is_small(table.prices->messages) && is_small(table.prices->message_bytes) &&
         std::ranges::all_of(figures.parts, [&](const CertifiedPart& part) {
           return std::ranges::all_of(kCertifiedPartFields, [&](auto field) { return is_small(part.*field); });
         });
}

void add_table(const InnerWay& way, const PricedTable& table, std::string& out) {
  out += fmt::format("{} {}", kTable, cut_words(certified_cut(way), false));
  if (!table.prices) {
    out += fmt::format(" {}{}{}\n", kRefused, table.refusal.empty() ? "" : " ", escaped(table.refusal));
    return;
  }
  const CertifiedTable figures = certified_prices(way, table.prices);
  out += fmt::format(" joined={} crossing={} messages={} message_bytes={}", figures.is_joined ? 1 : 0, figures.crossing,
                     table.prices->messages, table.prices->message_bytes);
  for (size_t part = 0; part < figures.parts.size(); ++part)
    out += fmt::format(" {}={}", part_name(part, figures.parts.size()), part_numbers(figures.parts[part]));
  out += "\n";
}

int64_t read_small(LineReader& reader, std::string_view name) {
  return reader.number_from(name, 0, kMostKept);
}

// Of as many parts as the line has.
PartPrices read_prices(LineReader& reader) {
  PartPrices out;
  out.is_joined = reader.number_from("joined", 0, 1) == 1;
  out.crossing = read_small(reader, "crossing");
  out.messages = read_small(reader, "messages");
  out.message_bytes = read_small(reader, "message_bytes");
  constexpr size_t kMostParts = static_cast<size_t>(kCertifiedKinds) + 2;
  for (bool is_last = false; !is_last;) {
    const std::string_view name = out.parts.empty() ? "before" : reader.next_is("block=") ? "block" : "after";
    is_last = name == "after";
    CertifiedPart part;
    read_part(reader, name, part, -kMostKept);
    for (const auto field : kCertifiedPartFields) {
      if (part.*field > kMostKept) reader.wrong(fmt::format("{} has a figure beyond {}", name, kMostKept));
    }
    out.parts.push_back(part_price(part));
    if (out.parts.size() > kMostParts) reader.wrong(fmt::format("it has more than {} parts", kMostParts));
  }
  reader.end_line();
  return out;
}

void read_table(LineReader& reader, PricedTables::OfJob& into) {
  reader.line_of(kTable);
  const InnerWay way = inner_way(read_cut(reader, false));
  if (!into.empty() && !(into.rbegin()->first < way))
    reader.wrong("the tables of a key are not in ascending order of their cuts, each once");
  PricedTable table;
  if (reader.next_is(kRefused)) {
    reader.word();
    table.refusal = unescaped(reader.rest_of_line());
  } else {
    table.prices = read_prices(reader);
  }
  into.emplace(way, std::move(table));
}

std::string read_key(LineReader& reader) {
  reader.line_of(kKey);
  std::string out(reader.word());
  reader.end_line();
  return out;
}

// Without the last, whose checksum is theirs.
std::string_view lines_in(std::string_view text) {
  const std::string_view first = text.substr(0, text.find('\n'));
  require(first == kTablesLine, "tables: '{}' is not '{}': this is no file of tables, or one of another version",
          first.substr(0, 40), kTablesLine);
  const size_t end = text.rfind("end ");
  require(end != std::string_view::npos && text.ends_with('\n'),
          "tables: it does not end with a line 'end' and a checksum: part of it is missing");
  const std::string_view lines = text.substr(0, end);
  require(sealed(lines) == text, "tables: its checksum does not match its lines: it was changed after it was written");
  return lines;
}

// No table depends on how large memories are.
std::string machine_text(const std::string& file) {
  Machine machine = read_machine(file);
  machine.memory_bytes = machine.host_memory_bytes = machine.disk_bytes = 0;
  return to_string(machine);
}

}  // namespace

std::string key_of_tables(const JobConfig& one_block, const Device& device, int threads) {
  JobConfig job = one_block;
  std::string out =
      fmt::format("{} {} {} {}\n", threads, device.name(), device.tuned_as(), device.bits(Numerics::kFast));
  // Groups are as large as in the whole batch, of whatever is priced.
  const int64_t groups = model_of(job).cuttable().expert_groups;
  if (groups > 1) {
    const int64_t common = std::gcd(groups, job.train.fit.batch);
    out += fmt::format("{} groups of {}\n", groups / common, job.train.fit.batch / common);
    set_keys(job, {"model.expert_groups=1"});
  }
  job.train.fit.batch = 1;
  job.parallel.stages.clear();  // which follow from the model
  for (std::string* file : {&job.parallel.machine, &job.parallel.rates}) {
    if (!file->empty()) out += machine_text(*file);
    file->clear();
  }
  const auto model = make_model(job);
  out += hash_of_graph(graphs_of(assembly_of(job, *model, 1), 1).step) + "\n";
  constexpr std::string_view kDescribed = "described:";
  if (job.train.device.starts_with(kDescribed)) {
    out += machine_text(job.train.device.substr(kDescribed.size()));
    job.train.device = kDescribed;
  }
  if (const auto tuning = known_tuning(job.train.tuning, device)) out += to_string(*tuning);
  return sha256_hex(out + to_toml(job));
}

std::string to_string(const PricedTables& tables) {
  std::string out = fmt::format("{}\n{} {}\n", kTablesLine, kProgram, this_program());
  for (const auto& [key, of_key] : tables.by_key) {
    out += fmt::format("{} {}\n", kKey, key);
    for (const auto& [way, table] : of_key) {
      if (is_kept(table)) add_table(way, table, out);
    }
  }
  return sealed(out);
}

std::optional<PricedTables> parse_priced_tables(std::string_view text) {
  LineReader reader(lines_in(text), "tables");
  reader.next_line();
  if (reader.line_of(kProgram) != this_program()) return std::nullopt;
  PricedTables out;
  while (!reader.is_at_end()) {
    std::string key = read_key(reader);
    if (!out.by_key.empty() && !(out.by_key.rbegin()->first < key))
      reader.wrong("the keys are not in ascending order, each once");
    PricedTables::OfJob& into = out.by_key[std::move(key)];
    while (reader.next_kind() == kTable) read_table(reader, into);
  }
  require(to_string(out) == text, "tables: its lines are not in the form in which tables are written");
  return out;
}

}  // namespace trireme

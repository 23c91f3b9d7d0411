#include "trireme/mesh/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <sstream>
#include <type_traits>

#include "trireme/base/cores.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/toml_text.h"
#include "trireme/base/utf8.h"
#include "trireme/mesh/mesh.h"

namespace trireme {
namespace {

// Reads one TOML table; every complaint names the file, the key and the value found.
class Reader {
 public:
  Reader(const toml::table& table, std::string where, std::string prefix, std::vector<std::string> keys)
      : table_(table), where_(std::move(where)), prefix_(std::move(prefix)) {
    for (const auto& [key, node] : table_) {
      if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
      require(false, "{}: line {}: no key '{}{}'.{}", where_, node.source().begin.line, prefix_, key.str(),
              suggestion(key.str(), keys));
    }
  }

  std::string text(std::string_view key) const { return value<std::string>(key, "a text in quotes"); }
  int64_t integer(std::string_view key) const { return value<int64_t>(key, "a whole number"); }
  double number(std::string_view key) const {
    const toml::value<int64_t>* whole = at(key).as_integer();  // as a double it would be refused from 2^53 on
    return whole != nullptr ? static_cast<double>(whole->get()) : value<double>(key, "a number");
  }
  bool has(std::string_view key) const { return table_.contains(key); }
  const toml::table& table(std::string_view key) const {
    const toml::table* out = at(key).as_table();
    require(out != nullptr, "{}: '{}{}' must be a table", where_, prefix_, key);
    return *out;
  }
  const toml::array& tables(std::string_view key) const {
    const toml::array* out = at(key).as_array();
    require(out != nullptr && out->is_homogeneous(toml::node_type::table),
            "{}: '{}{}' must be a list of tables, each headed [[{}]]", where_, prefix_, key, key);
    return *out;
  }

 private:
  const toml::node& at(std::string_view key) const {
    const toml::node* node = table_.get(key);
    require(node != nullptr, "{}: the key '{}{}' is missing", where_, prefix_, key);
    return *node;
  }
  template <class T>
  T value(std::string_view key, std::string_view wanted) const {
    const toml::node& node = at(key);
    const toml::value<double>* real =
        node.as_floating_point();  // 80e9 is a whole number, too, but not every one is an int64_t
    const bool fits = !std::is_same_v<T, int64_t> || real == nullptr || std::abs(real->get()) < 0x1p63;
    const auto out = fits ? node.value<T>() : std::nullopt;
    std::ostringstream found;
    if (!out && node.is_value()) node.visit([&](const auto& v) { found << v; });
    if (!out && !node.is_value())
      found << (node.is_table() ? "a table" : "a list");  // toml++ 3.3 cannot print one that holds infinity
    require(out.has_value(), "{}: line {}: '{}{}' is {}; it must be {}", where_, node.source().begin.line, prefix_, key,
            found.str(), wanted);
    return *out;
  }

  const toml::table& table_;
  std::string where_;
  std::string prefix_;
};

const std::vector<std::string>& element_types() {
  static const std::vector<std::string> kNames = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"};
  return kNames;
}

void read_device(const toml::table& table, const std::string& where, Machine& out) {
  const Reader device(table, where, "device.",
                      {"units", "memory_bytes", "memory_bytes_per_s", "host_memory_bytes", "to_host_bytes_per_s",
                       "from_host_bytes_per_s", "host_memory_bytes_per_s", "host_flops_per_s", "overlap_slowdown",
                       "disk_bytes", "disk_bytes_per_s", "achievable", "alignment", "flops_per_s", "scratch", "op"});
  if (device.has("units")) out.units = device.integer("units");
  out.memory_bytes = device.integer("memory_bytes");
  out.memory_bytes_per_s = device.number("memory_bytes_per_s");
  if (device.has("host_memory_bytes")) out.host_memory_bytes = device.integer("host_memory_bytes");
  if (device.has("to_host_bytes_per_s")) out.to_host_bytes_per_s = device.number("to_host_bytes_per_s");
  if (device.has("from_host_bytes_per_s")) out.from_host_bytes_per_s = device.number("from_host_bytes_per_s");
  if (device.has("host_memory_bytes_per_s")) out.host_memory_bytes_per_s = device.number("host_memory_bytes_per_s");
  if (device.has("host_flops_per_s")) out.host_flops_per_s = device.number("host_flops_per_s");
  if (device.has("overlap_slowdown")) out.overlap_slowdown = device.number("overlap_slowdown");
  if (device.has("disk_bytes")) out.disk_bytes = device.integer("disk_bytes");
  if (device.has("disk_bytes_per_s")) out.disk_bytes_per_s = device.number("disk_bytes_per_s");
  if (device.has("achievable")) out.achievable = device.number("achievable");
  if (device.has("alignment")) out.alignment = device.integer("alignment");
  if (device.has("scratch")) {
    for (const toml::node& node : device.tables("scratch")) {
      const Reader rule(*node.as_table(), where, "device.scratch.", {"ops", "bytes", "of_operands", "of_results"});
      out.scratch.push_back({rule.text("ops"), rule.has("bytes") ? rule.integer("bytes") : 0,
                             rule.has("of_operands") ? rule.number("of_operands") : 0,
                             rule.has("of_results") ? rule.number("of_results") : 0});
    }
  }
  if (device.has("op")) {
    for (const toml::node& node : device.tables("op")) {
      const Reader rate(*node.as_table(), where, "device.op.",
                        {"ops", "achievable", "launch_s", "tile_rows", "tile_columns", "memory"});
      out.op_rates.push_back({rate.text("ops"), rate.number("achievable"), rate.number("launch_s"),
                              rate.has("tile_rows") ? rate.integer("tile_rows") : 0,
                              rate.has("tile_columns") ? rate.integer("tile_columns") : 0,
                              rate.has("memory") ? rate.number("memory") : 0});
    }
  }
  const toml::table& rates = device.table("flops_per_s");
  const Reader flops(rates, where, "device.flops_per_s.", element_types());
  for (const auto& [key, node] : rates) {
    out.flops_per_s[std::string(key.str())] = flops.number(key.str());
  }
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == 0x7f || (c >= 0 && c < ' ')) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

const LinkLevel& Machine::level_of(int64_t devices) const {
  for (const LinkLevel& level : levels) {
    if (level.devices >= devices) return level;
  }
  fail(ErrorKind::kInvalidArgument, "machine '{}' has {} devices, but {} are needed", name, this->devices(), devices);
}

double Machine::flops_of(std::string_view dtype) const {
  const auto found = flops_per_s.find(std::string(dtype));
  if (found != flops_per_s.end()) return found->second;
  const auto f32 = flops_per_s.find("f32");
  return f32 == flops_per_s.end() ? 0 : f32->second;
}

Machine Machine::this_host() {
  const auto cores = static_cast<int64_t>(allowed_cores().size());
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page = sysconf(_SC_PAGESIZE);
  Machine out;
  out.name = "this_host";
  out.devices_per_host = cores;
  out.memory_bytes = pages > 0 && page > 0 ? pages * page / cores : int64_t{1} << 30;
  out.memory_bytes_per_s = 5.5e9;
  out.flops_per_s = {{"f32", 200e9}, {"bf16", 200e9}};
  out.achievable = 0.9;
  out.levels = {{"host", cores, 1.5e-6, 5e9}};
  return out;
}

std::string named_rates(const Machine& machine) {
  const bool is_assumed = machine == Machine::this_host();
  return fmt::format("'{}'{}", machine.name, is_assumed ? " (usual ones, not measured: see trireme calibrate)" : "");
}

std::string remark_on_ranks(const Machine& machine, int64_t ranks) {
  if (ranks <= machine.devices()) return "";
  return fmt::format("{} ranks share the {} of '{}'; the times told are those of ranks that have one each", ranks,
                     counted(machine.devices(), "device"), machine.name);
}

// What a device's rank has beside the device, which may be nothing.
static void check_beside(const Machine& machine, std::string_view where) {
  const std::pair<const char*, double> beside[] = {
      {"host_memory_bytes", static_cast<double>(machine.host_memory_bytes)},
      {"disk_bytes", static_cast<double>(machine.disk_bytes)},
      {"to_host_bytes_per_s", machine.to_host_bytes_per_s},
      {"from_host_bytes_per_s", machine.from_host_bytes_per_s},
      {"host_memory_bytes_per_s", machine.host_memory_bytes_per_s},
      {"host_flops_per_s", machine.host_flops_per_s}};
  for (const auto& [key, value] : beside)
    require(std::isfinite(value) && value >= 0, "{}: 'device.{}' is {}; it must be 0 or more", where, key, value);
}

static void check_op_rates(const Machine& machine, std::string_view where) {
  constexpr int64_t kMostUnits = 1 << 20;
  require(machine.units >= 1 && machine.units <= kMostUnits, "{}: 'device.units' is {}; it must be from 1 to 2^20",
          where, machine.units);
  for (const OpRate& rate : machine.op_rates) {
    constexpr double kMostAchievable = 1e3, kMostLaunch = 1;
    require(
        !rate.ops.empty() && rate.achievable > 0 && rate.achievable <= kMostAchievable && rate.launch_s >= 0 &&
            rate.launch_s <= kMostLaunch,
        "{}: a 'device.op' of '{}' has achievable = {}, launch_s = {}; it must name ops, achieve more than 0 and at "
        "most 1000 times the device's rates, and be launched in 0 to 1 s",
        where, rate.ops, rate.achievable, rate.launch_s);
    require(rate.memory >= 0 && rate.memory <= kMostAchievable,
            "{}: a 'device.op' of '{}' has memory = {}; it must be from 0 to 1000", where, rate.ops, rate.memory);
    constexpr int64_t kLargestTile = 1 << 16;
    const auto is_side = [](int64_t side) { return side >= 0 && side <= kLargestTile; };
    require(is_side(rate.tile_rows) && is_side(rate.tile_columns) && (rate.tile_rows == 0) == (rate.tile_columns == 0),
            "{}: a 'device.op' of '{}' has tile_rows = {}, tile_columns = {}; they must be from 1 to 65536, or both 0",
            where, rate.ops, rate.tile_rows, rate.tile_columns);
  }
}

void check(const Machine& machine, std::string_view where) {
  const auto positive = [&](std::string_view key, double value) {
    require(std::isfinite(value) && value > 0, "{}: '{}' is {}; it must be {}", where, key, value,
            std::isfinite(value) ? "more than 0" : "finite");
  };
  positive("hosts", static_cast<double>(machine.hosts));
  positive("devices_per_host", static_cast<double>(machine.devices_per_host));
  require(machine.hosts <= kMostDevices / machine.devices_per_host,
          "{}: {} hosts of {} devices are more than 2^40 devices", where, machine.hosts, machine.devices_per_host);
  positive("device.memory_bytes", static_cast<double>(machine.memory_bytes));
  positive("device.memory_bytes_per_s", machine.memory_bytes_per_s);
  positive("device.disk_bytes_per_s", machine.disk_bytes_per_s);
  check_beside(machine, where);
  require(machine.achievable > 0 && machine.achievable <= 1,
          "{}: 'device.achievable' is {}; it must be more than 0 and at most 1", where, machine.achievable);
  require(machine.overlap_slowdown >= 0 && machine.overlap_slowdown <= 1,
          "{}: 'device.overlap_slowdown' is {}; it must be from 0 to 1", where, machine.overlap_slowdown);
  constexpr int64_t kMostAlignment = 1 << 20;
  require(machine.alignment >= 64 && machine.alignment <= kMostAlignment &&
              std::has_single_bit(static_cast<uint64_t>(machine.alignment)),
          "{}: 'device.alignment' is {}; it must be a power of two from 64 to 2^20", where, machine.alignment);
  for (const ScratchRule& rule : machine.scratch) {
    constexpr double kMost = 1e6;
    const auto is_share = [](double value) { return value >= 0 && value <= kMost; };
    require(!rule.ops.empty() && rule.bytes >= 0 && rule.bytes <= machine.memory_bytes && is_share(rule.of_operands) &&
                is_share(rule.of_results),
            "{}: a 'device.scratch' of '{}' has bytes = {}, of_operands = {}, of_results = {}; it must name ops, and "
            "its figures must be from 0 to the device's memory and to 1e6",
            where, rule.ops, rule.bytes, rule.of_operands, rule.of_results);
  }
  check_op_rates(machine, where);
  require(machine.flops_per_s.contains("f32"), "{}: the key 'device.flops_per_s.f32' is missing", where);
  for (const auto& [dtype, rate] : machine.flops_per_s) {
    positive("device.flops_per_s." + dtype, rate);
  }
  require(!machine.levels.empty(), "{}: no link level; give at least one [[level]]", where);
  int64_t below = 0;
  for (const LinkLevel& level : machine.levels) {
    require(level.devices > below,
            "{}: level '{}' joins {} devices, no more than the level before it ({}); list levels "
            "from the smallest to the largest",
            where, level.name, level.devices, below);
    require(std::isfinite(level.latency_s) && level.latency_s >= 0,
            "{}: 'latency_s' of level '{}' is {}; it must be 0 or more", where, level.name, level.latency_s);
    positive(fmt::format("bytes_per_s' of level '{}", level.name), level.bytes_per_s);
    below = level.devices;
  }
  require(below == machine.devices(),
          "{}: the last level '{}' joins {} devices, but the machine has {} ({} of {}); they must be equal", where,
          machine.levels.back().name, below, machine.devices(), counted(machine.hosts, "host"),
          machine.devices_per_host);
}

Machine parse_machine(std::string_view text, std::string_view where) {
  text = without_byte_order_mark(text);
  const std::string file(where);
  const auto refuse = [&file](const TomlMistake& wrong) {
    fail(ErrorKind::kInvalidArgument, "{}: line {}, column {}: {}", file, wrong.line, wrong.column, wrong.text);
  };
  if (const std::optional<TomlMistake> wrong = mistake_before_parsing(text)) refuse(*wrong);
  toml::table table;
  try {
    static_cast<void>(toml::parse(in_ascii(text)));
    table = toml::parse(text);
  } catch (const toml::parse_error& e) {
    const toml::source_position& at = e.source().begin;
    refuse(mistake_of(text, {static_cast<int>(at.line), static_cast<int>(at.column), std::string(e.description())}));
  }
  const Reader top(table, file, "", {"name", "hosts", "devices_per_host", "device", "level"});
  Machine out;
  out.name = top.text("name");
  out.hosts = top.has("hosts") ? top.integer("hosts") : 1;
  out.devices_per_host = top.integer("devices_per_host");
  read_device(top.table("device"), file, out);
  for (const toml::node& node : top.tables("level")) {
    const Reader level(*node.as_table(), file, "level.", {"name", "devices", "latency_s", "bytes_per_s"});
    out.levels.push_back(
        {level.text("name"), level.integer("devices"), level.number("latency_s"), level.number("bytes_per_s")});
  }
  check(out, file);
  return out;
}

std::string to_string(const Machine& machine) {
  std::string out = fmt::format("name = {}\nhosts = {}\ndevices_per_host = {}\n", quoted(machine.name), machine.hosts,
                                machine.devices_per_host);
  out += fmt::format("\n[device]\nmemory_bytes = {}\nmemory_bytes_per_s = {}\nachievable = {}\n", machine.memory_bytes,
                     machine.memory_bytes_per_s, machine.achievable);
  if (machine.units != 1) out += fmt::format("units = {}\n", machine.units);
  if (machine.host_memory_bytes != 0) out += fmt::format("host_memory_bytes = {}\n", machine.host_memory_bytes);
  if (machine.to_host_bytes_per_s != 0) out += fmt::format("to_host_bytes_per_s = {}\n", machine.to_host_bytes_per_s);
  if (machine.from_host_bytes_per_s != 0)
    out += fmt::format("from_host_bytes_per_s = {}\n", machine.from_host_bytes_per_s);
  if (machine.host_memory_bytes_per_s != 0)
    out += fmt::format("host_memory_bytes_per_s = {}\n", machine.host_memory_bytes_per_s);
  if (machine.host_flops_per_s != 0) out += fmt::format("host_flops_per_s = {}\n", machine.host_flops_per_s);
  if (machine.overlap_slowdown != 0) out += fmt::format("overlap_slowdown = {}\n", machine.overlap_slowdown);
  if (machine.disk_bytes != 0) out += fmt::format("disk_bytes = {}\n", machine.disk_bytes);
  if (machine.disk_bytes_per_s != Machine{}.disk_bytes_per_s)
    out += fmt::format("disk_bytes_per_s = {}\n", machine.disk_bytes_per_s);
  if (machine.alignment != Machine{}.alignment) out += fmt::format("alignment = {}\n", machine.alignment);
  out += "\n[device.flops_per_s]\n";
  for (const auto& [dtype, rate] : machine.flops_per_s) out += fmt::format("{} = {}\n", dtype, rate);
  for (const OpRate& rate : machine.op_rates) {
    out += fmt::format("\n[[device.op]]\nops = {}\nachievable = {}\nlaunch_s = {}\n", quoted(rate.ops), rate.achievable,
                       rate.launch_s);
    if (rate.tile_rows != 0)
      out += fmt::format("tile_rows = {}\ntile_columns = {}\n", rate.tile_rows, rate.tile_columns);
    if (rate.memory != 0) out += fmt::format("memory = {}\n", rate.memory);
  }
  for (const ScratchRule& rule : machine.scratch) {
    out += fmt::format("\n[[device.scratch]]\nops = {}\nbytes = {}\nof_operands = {}\nof_results = {}\n",
                       quoted(rule.ops), rule.bytes, rule.of_operands, rule.of_results);
  }
  for (const LinkLevel& level : machine.levels) {
    out += fmt::format("\n[[level]]\nname = {}\ndevices = {}\nlatency_s = {}\nbytes_per_s = {}\n", quoted(level.name),
                       level.devices, level.latency_s, level.bytes_per_s);
  }
  return out;
}

Machine read_machine(const std::string& path) {
  require_file(path, "machine",
               "name a machine's file, like machines/h100x8.toml, or one that `trireme calibrate` wrote");
  return parse_machine(read_file(path), path);
}

void write_machine(const Machine& machine, const std::string& path) {
  check(machine, path);
  try {
    atomic_write(path, to_string(machine));
  } catch (const Error& e) {
    fail(ErrorKind::kIo, "cannot write the machine file '{}': {}", path, e.what());
  }
}

}  // namespace trireme

#include "trireme/mesh/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "trireme/base/error.h"

namespace trireme::machine_test {
namespace {

constexpr std::string_view kText = R"(name = "two hosts"
hosts = 2
devices_per_host = 8

[device]
memory_bytes = 1000000000
memory_bytes_per_s = 1e11
achievable = 0.5

[device.flops_per_s]
f32 = 1e13
bf16 = 2e14

[[level]]
name = "host"
devices = 8
latency_s = 2e-6
bytes_per_s = 1e11

[[level]]
name = "network"
devices = 16
latency_s = 5e-6
bytes_per_s = 1e10
)";

std::string error_of(auto&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

// The error of reading kText with one piece replaced.
std::string error_with(std::string_view from, std::string_view to) {
  std::string text(kText);
  const size_t at = text.find(from);
  if (at == std::string::npos) return "the test replaces what is not there";
  text.replace(at, from.size(), to);
  return error_of([&] { parse_machine(text, "m.toml"); });
}

TEST(Machine, reads_every_figure) {
  const Machine machine = parse_machine(kText);

  EXPECT_EQ(machine.name, "two hosts");
  EXPECT_EQ(machine.devices(), 16);
  EXPECT_EQ(machine.memory_bytes, 1000000000);
  EXPECT_EQ(machine.memory_bytes_per_s, 1e11);
  EXPECT_EQ(machine.achievable, 0.5);
  EXPECT_EQ(machine.flops_of("bf16"), 2e14);
  EXPECT_EQ(machine.flops_of("i32"), 1e13);
  EXPECT_EQ(machine.level_of(2).name, "host");
  EXPECT_EQ(machine.level_of(8).name, "host");
  EXPECT_EQ(machine.level_of(9).name, "network");
}

TEST(Machine, a_byte_order_mark_before_the_text_is_passed_over) {
  EXPECT_EQ(to_string(parse_machine("\xef\xbb\xbf" + std::string(kText), "m.toml")),
            to_string(parse_machine(kText, "m.toml")));
}

TEST(Machine, print_and_parse_are_inverses) {
  Machine machine = parse_machine(kText);
  machine.name = "a \"quoted\\name\"";
  machine.levels[0].latency_s = 1.0 / 3.0;

  EXPECT_EQ(parse_machine(to_string(machine)), machine);
}

// What the fuzzer of tests/fuzz found.
TEST(Machine, large_rates_and_odd_names_survive_their_text) {
  Machine machine = parse_machine(kText);
  machine.name = "two\nhosts \"\x7f\t\xc3\xa4";
  machine.flops_per_s["bf16"] = 9889e12;  // printed as a whole number, above 2^53

  const Machine back = parse_machine(to_string(machine));

  EXPECT_EQ(back.name, machine.name);
  EXPECT_EQ(back.flops_per_s, machine.flops_per_s);
}

// What a step takes on its devices (backend/described).
constexpr std::string_view kMemory = R"(achievable = 0.5
alignment = 256

[[device.scratch]]
ops = "*matmul*"
bytes = 33554432

[[device.scratch]]
ops = "attention_grad"
of_operands = 2
of_results = 0.67
)";

TEST(Machine, says_how_a_devices_memory_is_used) {
  std::string text(kText);
  text.replace(text.find("achievable = 0.5\n"), 17, kMemory);
  const Machine machine = parse_machine(text);

  EXPECT_EQ(parse_machine(kText).alignment, 64);
  EXPECT_EQ(machine.alignment, 256);
  ASSERT_EQ(machine.scratch.size(), 2U);
  EXPECT_EQ(machine.scratch[0], (ScratchRule{"*matmul*", 33554432, 0, 0}));
  EXPECT_EQ(machine.scratch[1], (ScratchRule{"attention_grad", 0, 2, 0.67}));
  EXPECT_EQ(parse_machine(to_string(machine)), machine);
}

TEST(Machine, has_a_disk_of_the_usual_rate_unless_its_file_says_another) {
  Machine machine = Machine::this_host();
  EXPECT_EQ(machine.disk_bytes_per_s, 1e9);
  machine.disk_bytes_per_s = 3.5e9;
  EXPECT_EQ(parse_machine(to_string(machine)), machine);
  machine.disk_bytes_per_s = 0;
  EXPECT_THAT(error_of([&] { check(machine, "m"); }),
              testing::HasSubstr("'device.disk_bytes_per_s' is 0; it must be more"));
}

TEST(Machine, this_host_is_valid_and_survives_its_text) {
  const Machine machine = Machine::this_host();

  check(machine, "this host");
  EXPECT_EQ(parse_machine(to_string(machine)), machine);
}

TEST(Machine, what_a_device_has_beside_it_is_read_and_written_and_must_be_possible) {
  Machine machine = parse_machine(kText);
  EXPECT_EQ(machine.host_memory_bytes, 0);
  EXPECT_EQ(machine.disk_bytes, 0);
  machine.host_memory_bytes = 250'000'000'000;
  machine.to_host_bytes_per_s = 6.4e10;
  machine.from_host_bytes_per_s = 5e10;
  machine.host_memory_bytes_per_s = 7.68e10;
  machine.host_flops_per_s = 1.8e12;
  machine.disk_bytes = 3'840'000'000'000;
  EXPECT_EQ(parse_machine(to_string(machine)), machine);
  machine.from_host_bytes_per_s = -1;
  EXPECT_EQ(error_of([&] { check(machine, "m.toml"); }),
            "m.toml: 'device.from_host_bytes_per_s' is -1; it must be 0 or more");
  machine.from_host_bytes_per_s = 0;
  machine.overlap_slowdown = 0.75;
  EXPECT_EQ(parse_machine(to_string(machine)), machine);
  EXPECT_EQ(error_with("achievable = 0.5", "overlap_slowdown = 1.5"),
            "m.toml: 'device.overlap_slowdown' is 1.5; it must be from 0 to 1");
  EXPECT_EQ(error_with("achievable = 0.5", "host_memory_bytes = -5"),
            "m.toml: 'device.host_memory_bytes' is -5; it must be 0 or more");
}

TEST(Machine, rates_of_ops_are_read_and_written_and_must_be_possible) {
  Machine machine = parse_machine(kText);
  machine.units = 108;
  machine.op_rates = {{"matmul", 0.85, 2e-6, 256, 128}, {"linear", 0.9, 0, 0, 0, 1.1}, {"*", 3, 0}};
  EXPECT_EQ(parse_machine(to_string(machine)), machine);
  machine.op_rates.erase(machine.op_rates.begin() + 1);
  machine.op_rates[1].achievable = 0;
  EXPECT_THAT(error_of([&] { check(machine, "m.toml"); }),
              testing::HasSubstr("m.toml: a 'device.op' of '*' has achievable = 0, launch_s = 0; it must name ops"));
  machine.op_rates[1] = {"*", 1, -1};
  EXPECT_THAT(error_of([&] { check(machine, "m.toml"); }), testing::HasSubstr("launch_s = -1"));
  machine.op_rates[1] = {"*", 1, 0, 256, 0};
  EXPECT_THAT(error_of([&] { check(machine, "m.toml"); }), testing::HasSubstr("tile_rows = 256, tile_columns = 0"));
  machine.op_rates[1] = {"*", 1, 0, 0, 0, -1};
  EXPECT_THAT(error_of([&] { check(machine, "m.toml"); }), testing::HasSubstr("has memory = -1; it must be from 0"));
  EXPECT_EQ(error_with("achievable = 0.5", "units = 0"), "m.toml: 'device.units' is 0; it must be from 1 to 2^20");
}

TEST(Machine, is_written_to_and_read_from_a_file) {
  std::string folder = std::filesystem::temp_directory_path() / "trireme_machine_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/m.toml";

  write_machine(parse_machine(kText), path);
  const Machine back = read_machine(path);
  std::filesystem::remove_all(folder);

  EXPECT_EQ(back, parse_machine(kText));
  EXPECT_EQ(error_of([&] { read_machine(path); }),
            fmt::format("machine: there is no file '{}'; name a machine's file, like machines/h100x8.toml, or one that "
                        "`trireme calibrate` wrote",
                        path));
  EXPECT_THAT(error_of([&] { read_machine("/"); }), testing::StartsWith("machine: '/' is a directory; name"));
  EXPECT_THAT(error_of([&] { write_machine(back, path); }),
              testing::HasSubstr(fmt::format("cannot write the machine file '{}': cannot create", path)));
}

TEST(Machine, shipped_files_are_valid_and_named_as_their_machine) {
  const auto folder = std::filesystem::path(TRIREME_SOURCE_DIR) / "machines";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(read_machine(entry.path()).name, entry.path().stem().string());
    ++files;
  }
  EXPECT_GE(files, 3);
}

// A slip in a figure, like GB/s for bytes/s, or both ways for one, moves it out of what such machines have.
TEST(Machine, shipped_files_have_figures_that_such_machines_have) {
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TRIREME_SOURCE_DIR) + "/machines")) {
    const std::string name = entry.path().stem().string();
    const Machine machine = read_machine(entry.path());
    for (size_t level = 1; level < machine.levels.size(); ++level) {
      EXPECT_LT(machine.levels[level].bytes_per_s, machine.levels[level - 1].bytes_per_s) << name;
      EXPECT_GT(machine.levels[level].latency_s, machine.levels[level - 1].latency_s) << name;
    }
    EXPECT_EQ(machine.levels.front().devices % machine.devices_per_host, 0) << name;
    if (name == "laptop") continue;
    EXPECT_TRUE(name.ends_with("x" + std::to_string(machine.devices()))) << name << " has " << machine.devices();
    const auto is_within = [&](double value, double least, double most, const char* what) {
      EXPECT_TRUE(value >= least && value <= most) << name << ": " << what << " is " << value;
    };
    is_within(static_cast<double>(machine.memory_bytes), 40e9, 192e9, "memory");
    is_within(machine.memory_bytes_per_s, 1.5e12, 8e12, "memory bandwidth");
    is_within(machine.flops_of("bf16"), 300e12, 2500e12, "bf16");
    is_within(machine.flops_of("bf16") / machine.flops_of("f32"), 10, 40, "bf16 over f32");
    is_within(machine.levels.front().bytes_per_s, 150e9, 900e9, "the fastest link");
    is_within(machine.levels.back().bytes_per_s, 25e9, 900e9, "the slowest link");
    is_within(machine.levels.back().latency_s, 1e-6, 20e-6, "latency");
    is_within(static_cast<double>(machine.host_memory_bytes), 100e9, 512e9, "the host's memory for a device");
    for (const double link : {machine.to_host_bytes_per_s, machine.from_host_bytes_per_s})
      is_within(link / machine.memory_bytes_per_s, 0.01, 0.1, "the host's link over the memory's bandwidth");
    is_within(machine.host_memory_bytes_per_s, 40e9, 300e9, "the host's memory bandwidth for a device");
    if (machine.host_flops_per_s > 0) is_within(machine.host_flops_per_s, 1e12, 5e12, "the host's arithmetic");
    if (machine.disk_bytes > 0) is_within(machine.disk_bytes_per_s, 1e9, 14e9, "the disk");
  }
}

TEST(MachineErrors, figures_of_memory_that_cannot_be_are_refused) {
  EXPECT_EQ(error_with("achievable = 0.5", "alignment = 100"),
            "m.toml: 'device.alignment' is 100; it must be a power of two from 64 to 2^20");
  EXPECT_EQ(
      error_with("achievable = 0.5", "[[device.scratch]]\nops = \"exp\"\nof_results = -1\n"),
      "m.toml: a 'device.scratch' of 'exp' has bytes = 0, of_operands = 0, of_results = -1; it must name ops, and "
      "its figures must be from 0 to the device's memory and to 1e6");
}

TEST(MachineErrors, unknown_keys_name_the_likely_one) {
  EXPECT_EQ(error_with("latency_s", "latencys"), "m.toml: line 17: no key 'level.latencys'. Did you mean 'latency_s'?");
  EXPECT_EQ(error_with("hosts = 2", "host = 2"), "m.toml: line 2: no key 'host'. Did you mean 'hosts'?");
  EXPECT_EQ(error_with("bf16 =", "bfl16 ="),
            "m.toml: line 12: no key 'device.flops_per_s.bfl16'. Did you mean 'bf16'?");
}

TEST(MachineErrors, wrong_and_missing_values_name_key_and_value) {
  EXPECT_EQ(error_with("hosts = 2", "hosts = \"two\""), "m.toml: line 2: 'hosts' is 'two'; it must be a whole number");
  EXPECT_EQ(error_with("name = \"two hosts\"", ""), "m.toml: the key 'name' is missing");
  EXPECT_EQ(error_with("name = \"two hosts\"", "name = 2"), "m.toml: line 1: 'name' is 2; it must be a text in quotes");
  EXPECT_EQ(error_with("hosts = 2", "hosts = [inf]"), "m.toml: line 2: 'hosts' is a list; it must be a whole number");
  EXPECT_EQ(error_with("f32 = 1e13", ""), "m.toml: the key 'device.flops_per_s.f32' is missing");
  EXPECT_EQ(error_with("hosts = 2", "hosts = 0"), "m.toml: 'hosts' is 0; it must be more than 0");
  EXPECT_EQ(error_with("achievable = 0.5", "achievable = 1.5"),
            "m.toml: 'device.achievable' is 1.5; it must be more than 0 and at most 1");
  EXPECT_EQ(error_with("latency_s = 2e-6", "latency_s = -1"),
            "m.toml: 'latency_s' of level 'host' is -1; it must be 0 or more");
  EXPECT_EQ(error_with("bytes_per_s = 1e10", "bytes_per_s = 0"),
            "m.toml: 'bytes_per_s' of level 'network' is 0; it must be more than 0");
  EXPECT_EQ(error_with("bytes_per_s = 1e10", "bytes_per_s = -1e10"),
            "m.toml: 'bytes_per_s' of level 'network' is -10000000000; it must be more than 0");
  EXPECT_EQ(error_with("bytes_per_s = 1e10", "bytes_per_s = inf"),
            "m.toml: 'bytes_per_s' of level 'network' is inf; it must be finite");
  EXPECT_EQ(error_with("bytes_per_s = 1e10", ""), "m.toml: the key 'level.bytes_per_s' is missing");
  EXPECT_EQ(error_with("memory_bytes_per_s = 1e11", "memory_bytes_per_s = 0"),
            "m.toml: 'device.memory_bytes_per_s' is 0; it must be more than 0");
  EXPECT_EQ(error_with("memory_bytes = 1000000000", "memory_bytes = -1"),
            "m.toml: 'device.memory_bytes' is -1; it must be more than 0");
  EXPECT_EQ(error_with("f32 = 1e13", "f32 = -1e13"),
            "m.toml: 'device.flops_per_s.f32' is -10000000000000; it must be more than 0");
  EXPECT_EQ(error_with("[device]", "[[device]]"), "m.toml: 'device' must be a table");
  EXPECT_EQ(error_with("hosts = 2", "hosts = 4611686018427387904"),
            "m.toml: 4611686018427387904 hosts of 8 devices are more than 2^40 devices");
  EXPECT_EQ(error_with("hosts = 2", "hosts = 1e19"), "m.toml: line 2: 'hosts' is 1e+19; it must be a whole number");
  EXPECT_EQ(error_with("hosts = 2", "hosts = nan"), "m.toml: line 2: 'hosts' is nan; it must be a whole number");
  EXPECT_EQ(error_with("hosts = 2", "hosts = 2\n\xef\xb9\xbf = 1"),
            "m.toml: line 3, column 1: a character that is not ASCII must stand in quotes or a comment");
  EXPECT_EQ(error_with("hosts = 2", "\xef\xbb\xbfhosts = 2"),
            "m.toml: line 2, column 1: a character that is not ASCII must stand in quotes or a comment");
}

TEST(MachineErrors, levels_must_grow_up_to_the_machine) {
  EXPECT_EQ(error_with("devices = 16", "devices = 8"),
            "m.toml: level 'network' joins 8 devices, no more than the level before it (8); list "
            "levels from the smallest to the largest");
  EXPECT_EQ(error_with("devices = 16", "devices = 12"),
            "m.toml: the last level 'network' joins 12 devices, but the machine has 16 (2 hosts of "
            "8); they must be equal");
  EXPECT_EQ(error_of([] { static_cast<void>(parse_machine(kText).level_of(17)); }),
            "machine 'two hosts' has 16 devices, but 17 are needed");
  Machine machine = parse_machine(kText);
  machine.levels.clear();
  EXPECT_EQ(error_of([&] { check(machine, "m"); }), "m: no link level; give at least one [[level]]");
}

TEST(MachineErrors, text_that_is_no_toml_names_the_line) {
  EXPECT_EQ(error_with("hosts = 2", "hosts = = 2").substr(0, 26), "m.toml: line 2, column 9: ");
  EXPECT_EQ(error_of([] {
              parse_machine(
                  "name = 'x'\nlevel = 3\ndevices_per_host = 1\n[device]\nmemory_bytes = "
                  "1\nmemory_bytes_per_s = 1\n[device.flops_per_s]\nf32 = 1",
                  "m.toml");
            }),
            "m.toml: 'level' must be a list of tables, each headed [[level]]");
}

TEST(Machine, rates_that_nobody_measured_are_called_so) {
  Machine host = Machine::this_host();
  EXPECT_EQ(named_rates(host), "'this_host' (usual ones, not measured: see trireme calibrate)");
  host.memory_bytes_per_s *= 2;  // as measured
  EXPECT_EQ(named_rates(host), "'this_host'");
}

TEST(Machine, more_ranks_than_devices_are_told) {
  const Machine machine = parse_machine(kText);
  EXPECT_EQ(remark_on_ranks(machine, 16), "");
  EXPECT_EQ(remark_on_ranks(machine, 17),
            "17 ranks share the 16 devices of 'two hosts'; the times told are those of ranks that have one each");
}

}  // namespace
}  // namespace trireme::machine_test

// Machine: what the planner knows about the hardware: devices, memory, arithmetic and links. It is read from and
// written to a TOML file. machines/ has some, and `trireme calibrate` makes one by measuring.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// The links between devices that share a block of `devices` consecutive devices but no smaller
// level's.
struct LinkLevel {
  std::string name;  // "host", "rack", "cluster"
  int64_t devices = 1;
  double latency_s = 0;
  double bytes_per_s = 0;  // one way, for one device
  friend bool operator==(const LinkLevel&, const LinkLevel&) = default;
};

// Memory that a device's kernels need beside their operands and results: in a call of an op that the pattern names, so
// many bytes, and so many times those of the operands and of the results. In a pattern * stands for any characters.
struct ScratchRule {
  std::string ops;
  int64_t bytes = 0;
  double of_operands = 0, of_results = 0;
  friend bool operator==(const ScratchRule&, const ScratchRule&) = default;
};

// What calls of an op that the pattern names take: `launch_s`, and the longer of arithmetic and bytes at the device's
// rates divided by `achievable`, which is more than 1 where operands come from a cache. With `memory` arithmetic, so
// divided, and so many times the bytes at the memory's rate, one after the other: a CPU's kernels bring operands into
// another order first. With a tile, results are computed in tiles of so many rows and columns, or the other way around,
// one on each of the device's units at a time: the last round takes as long as a full one (wave quantisation), and
// tiles are written after their arithmetic. 0: no tile.
struct OpRate {
  std::string ops;
  double achievable = 1;
  double launch_s = 0;
  int64_t tile_rows = 0, tile_columns = 0;
  double memory = 0;
  friend bool operator==(const OpRate&, const OpRate&) = default;
};

struct Machine {
  std::string name;
  int64_t hosts = 1;
  int64_t devices_per_host = 1;
  int64_t units = 1;              // of one device that compute tiles at the same time: a GPU's multiprocessors
  int64_t memory_bytes = 0;       // of one device
  double memory_bytes_per_s = 0;  // of one device
  double disk_bytes_per_s = 1e9;  // of the disk of a device's rank, read or written in large blocks
  // What a device's rank has beside the device: of the host's memory, and of a disk; 0: none that plans may use, as
  // where the host's memory is the device's.
  int64_t host_memory_bytes = 0, disk_bytes = 0;
  // From the device's memory to the host's, and from there to the device; both ways at a time. 0: at the rate of the
  // device's memory, as where that is the host's.
  double to_host_bytes_per_s = 0, from_host_bytes_per_s = 0;
  // What the host has for each device where ops run on it: of its memory's rate, and of its arithmetic in f32. 0: that
  // of the device.
  double host_memory_bytes_per_s = 0, host_flops_per_s = 0;
  // The share of the time of a collective or message that computing loses while both run: 1 where communication needs
  // the core that computes, 0 where it has engines of its own.
  double overlap_slowdown = 0;
  std::map<std::string, double> flops_per_s;  // of one device, by element type: "f32", "bf16"
  double achievable = 1.0;                    // share of flops_per_s that large kernels reach
  std::vector<OpRate> op_rates;               // the first that names an op counts, instead of `achievable`
  int64_t alignment = 64;                     // of buffers in a device's memory, bytes
  std::vector<ScratchRule> scratch;           // the first that names an op counts; an op without one needs none
  std::vector<LinkLevel> levels;              // smallest first; the last reaches every device

  int64_t devices() const { return hosts * devices_per_host; }
  // The smallest level that joins a block of this many consecutive devices; throws kInvalidArgument
  // when the machine has fewer.
  const LinkLevel& level_of(int64_t devices) const;
  // Peak for an element type; a type not listed runs at the rate of f32.
  double flops_of(std::string_view dtype) const;
  friend bool operator==(const Machine&, const Machine&) = default;

  // One host with a device per core and the rates measured on the machines the project is built on;
  // only the cores and the memory are read from the system.
  static Machine this_host();
};

// The name in quotes, and that its rates are only the usual ones where nobody measured this host.
std::string named_rates(const Machine& machine);
// What to tell who reads times predicted for so many ranks: empty, or that they have to share the machine's cores.
std::string remark_on_ranks(const Machine& machine, int64_t ranks);

// Throws kInvalidArgument naming the key, its value and what would be right. `where` is the file's
// name in the text of errors.
Machine parse_machine(std::string_view text, std::string_view where = "machine");
std::string to_string(const Machine& machine);  // TOML; parse_machine reads it back identical
Machine read_machine(const std::string& path);
void write_machine(const Machine& machine, const std::string& path);

// Throws kInvalidArgument when a figure is missing or out of range.
void check(const Machine& machine, std::string_view where);

}  // namespace trireme

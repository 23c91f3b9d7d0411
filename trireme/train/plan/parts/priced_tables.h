// Tables of a model's parts that were compiled, kept for later searches of the same process, or in a file for those of
// others: a plan for another memory, batch, number of ranks or layers compiles only what it asks for beside these.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/train/plan/parts/inner_way.h"

namespace trireme {

class Device;  // backend/device.h

struct PricedTable {
  std::optional<PartPrices> prices;  // nothing: the compiler refuses the way
  std::string refusal = {};          // and why, in one line; may be empty where another table says it
  friend bool operator==(const PricedTable&, const PricedTable&) = default;
};

struct PricedTables {
  using OfJob = std::map<InnerWay, PricedTable>;
  std::map<std::string, OfJob> by_key;
  friend bool operator==(const PricedTables&, const PricedTables&) = default;
};

// All that tables depend on beside their ways, as 64 digits: the job, but for its batch, with one block of each kind;
// its training step; what its files say of the machine, the device and kernels, but for how large memories are.
std::string key_of_tables(const JobConfig& one_block, const Device& device, int threads);

// The file's text: lines with a version and a checksum (docs/file_formats.md). It says which program compiled the
// tables, as another one may price otherwise: that of this process.
std::string to_string(const PricedTables& tables);
// Throws kInvalidArgument with the line's number: another version, a line that is none, a checksum that is not that of
// the lines. Nothing if another program compiled them.
std::optional<PricedTables> parse_priced_tables(std::string_view text);

}  // namespace trireme

// How values that lie in another tier than the device's come to the device and leave it (docs/design/tiers.md). None of
// this changes a bit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/parallel/asked/scope_pattern.h"
#include "trireme/parallel/asked/tier_sizes.h"

namespace trireme {

// How early comes what ops in this scope read: of several rules for an op the last that matches counts.
struct PrefetchRule {
  ScopePattern scope;
  std::string op;       // of this name; "": of any
  int64_t readers = 4;  // so many ops that something comes for are between its begin and its reader, at most
  friend bool operator==(const PrefetchRule&, const PrefetchRule&) = default;
};

// "h.* = 2", "h.0..5/matmul = 1". Throws kInvalidArgument for what is none.
PrefetchRule parse_prefetch_rule(const std::string& text);
std::string to_string(const PrefetchRule& rule);

struct TierWays {
  MemorySize update_part{8 << 20};  // of a tensor, that an update takes at a time; 0: all
  std::vector<PrefetchRule> prefetch = {};
  MemorySize disk_block{512 << 10};  // the disk is read and written in these
  int64_t disk_queue = 4;            // so many at a time
  // If the device's memory has a limit, what leaves it is chosen automatically. Otherwise everything lies where rules
  // say, and parameters and state without a rule lie in `offload_to`.
  bool auto_offload = true;
  Tier offload_to = Tier::kDevice;
};

// Whether homes are chosen by how much memory there is: if the device's memory has a limit; or, if values lie on the
// host because ops run there, if the host's memory has a limit and a disk is named.
bool chooses_homes(const TierSizes& sizes, const TierWays& ways, bool runs_on_host);

// For an op of this name and module (ir/gradient_scope.h).
int64_t readers_ahead(std::span<const PrefetchRule> rules, std::string_view scope, std::string_view op);

// Throws kInvalidArgument for a rule that matches no part of the model, or that names an op that does not exist.
void check_prefetch_rules(const Graph& graph, std::span<const PrefetchRule> rules);

}  // namespace trireme

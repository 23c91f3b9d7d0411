// What a user says about how to search for a strategy (planner/search.h; each search has a file of its name there), or
// for a plan of the whole job (train/plan/auto).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/keys.h"

namespace trireme {

enum class SearchKind {
  kNone,                  // nothing is searched: what is not asked for follows what is (parallel/propagate/propagate.h)
  kShardingPropagation,   // from the ops that cuts are asked for to their neighbours, by what moves the fewest bytes
  kDynamicProgramming,    // all axes of the mesh at once, exactly; for few ranks
  kRecursiveProgramming,  // one prime axis of the mesh after the other, each exactly; for many ranks
  // No searches for a strategy: a whole job is planned before it is cut, its stages, axes, schedule, micro-batches and
  // memory (train/plan/auto/auto_plan.h).
  kExact,     // by the prices of its parts
  kCompiled,  // each way is compiled
};

inline constexpr NameOf<SearchKind> kSearchKinds[] = {{"sharding_propagation", SearchKind::kShardingPropagation},
                                                      {"dynamic_programming", SearchKind::kDynamicProgramming},
                                                      {"recursive_programming", SearchKind::kRecursiveProgramming},
                                                      {"exact", SearchKind::kExact},
                                                      {"compiled", SearchKind::kCompiled}};
// Those for a strategy.
inline constexpr std::span<const NameOf<SearchKind>> kStrategySearches = std::span(kSearchKinds).first<3>();
inline bool plans_whole_job(SearchKind kind) {
  return kind == SearchKind::kExact || kind == SearchKind::kCompiled;
}
inline std::string_view to_string(SearchKind kind) {
  return kind == SearchKind::kNone ? "none" : name_of(kind, kSearchKinds);
}

// What recursive_programming makes least.
enum class SearchCost {
  kTime,           // of a step, by the rates of the machine
  kCommunication,  // elements that ranks exchange, as MindSpore counts them (planner/least_communication.h)
};

inline constexpr NameOf<SearchCost> kSearchCosts[] = {{"time", SearchCost::kTime},
                                                      {"communication", SearchCost::kCommunication}};

// The candidates that an op has, limited as MindSpore's set_algo_parameters does.
struct SearchOptions {
  SearchKind kind = SearchKind::kNone;
  SearchCost cost = SearchCost::kTime;
  bool fully_use_devices = false;   // only those in which every rank has a part of its own, where there are any
  bool elementwise_follow = false;  // an elementwise op takes its largest operand as that is made
  bool approximate = false;         // the 1 / epsilon cheapest
  double epsilon = 0.1;
  bool align_slices = false;  // of a product: the last dimension of a piece is a multiple of slice_align
  int64_t slice_align = 16;
};
// Whether the search goes on from what is asked, and from a batch that lies as it usually does. Others find also how
// the batch lies.
bool goes_on_from_batch(const SearchOptions& options);
// "recursive_programming", or "recursive_programming by communication".
std::string to_string(const SearchOptions& options);

// The section [parallel], but for the kind.
std::vector<Key> keys_of(SearchOptions& options);

}  // namespace trireme

#include "trireme/parallel/asked/search_options.h"

#include "trireme/base/error.h"

namespace trireme {
namespace {

void check_epsilon(const std::string& name, const KeyTarget& target) {
  const double epsilon = *std::get<double*>(target);
  require(epsilon > 0 && epsilon <= 1, "{} = {}; it must be above 0 and at most 1", name, epsilon);
}

}  // namespace

bool goes_on_from_batch(const SearchOptions& options) {
  return options.kind == SearchKind::kShardingPropagation ||
         (options.kind == SearchKind::kRecursiveProgramming && options.cost == SearchCost::kCommunication);
}

std::string to_string(const SearchOptions& options) {
  const bool by_cost = options.kind == SearchKind::kRecursiveProgramming && options.cost != SearchCost::kTime;
  return std::string(to_string(options.kind)) + (by_cost ? " by communication" : "");
}

std::vector<Key> keys_of(SearchOptions& options) {
  return {
      {.name = "search_cost",
       .target = one_of(&options.cost, kSearchCosts),
       .doc = "what search = 'recursive_programming' makes least: time (of a step, on the machine) or communication "
              "(elements that ranks exchange, as MindSpore's recursive_programming counts them)",
       .of_ranks = true},
      {.name = "fully_use_devices",
       .target = &options.fully_use_devices,
       .doc = "auto_parallel: true: an op is cut only in ways that give every rank a part of its own, where it has any",
       .of_ranks = true},
      {.name = "elementwise_op_strategy_follow",
       .target = &options.elementwise_follow,
       .doc = "auto_parallel: true: an elementwise op takes its largest operand as that is made",
       .of_ranks = true},
      {.name = "enable_algo_approxi",
       .target = &options.approximate,
       .doc = "auto_parallel: true: of the ways to cut an op, only the cheapest are looked at",
       .of_ranks = true},
      {.name = "algo_approxi_epsilon",
       .target = &options.epsilon,
       .doc = "with enable_algo_approxi: at most 1 over this many ways are looked at",
       .check = check_epsilon,
       .no_effect_with = "enable_algo_approxi = false",
       .of_ranks = true},
      {.name = "tensor_slice_align_enable",
       .target = &options.align_slices,
       .doc = "auto_parallel: true: products are cut only so that pieces of their last dimensions are multiples of "
              "tensor_slice_align_size",
       .of_ranks = true},
      {.name = "tensor_slice_align_size",
       .target = &options.slice_align,
       .doc = "with tensor_slice_align_enable: 1 to 1024",
       .check = check_from_to<1, 1024>,
       .no_effect_with = "tensor_slice_align_enable = false",
       .of_ranks = true}};
}

}  // namespace trireme

// Parameter groups: rules by name that give single parameters their own settings of training in place of the
// optimizer's: no weight decay for biases and norms, a different learning rate, or no training at all for frozen ones.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/words.h"
#include "trireme/ir/graph.h"
#include "trireme/nn/optimizer_spec.h"

namespace trireme {

// "*.bias = weight_decay 0", "head.* = lr_scale 10, weight_decay 0.1", "wte.* = frozen": what is asked of the
// parameters whose full names match the pattern (base/words.h). After `=` stand, with commas between them, numbers of
// the optimizer by its own names (train.optimizer's keys), `lr_scale`, by which the learning rate of each step is
// multiplied, and `frozen` or `trained`. Of several rules that match a name and say the same number, the last one
// counts.
struct ParameterRule {
  std::string pattern;
  std::map<std::string, double> numbers = {};  // of the optimizer
  std::optional<double> lr_scale = {};         // above 0
  std::optional<bool> frozen = {};             // true: no gradient, no state, no update

  ParameterRule() = default;
  // Throws kInvalidArgument for a text that is no rule. Which numbers there are is seen when the optimizer is known.
  template <Text T>
  ParameterRule(const T& written) : ParameterRule(read(written)) {}  // NOLINT: written as text

  friend bool operator==(const ParameterRule&, const ParameterRule&) = default;

 private:
  static ParameterRule read(std::string_view text);
};
std::string to_string(const ParameterRule& rule);

namespace nn {

// What the rules say of one parameter, all together.
struct ParameterGroup {
  std::map<std::string, double> numbers = {};
  double lr_scale = 1;
  bool frozen = false;
};
std::string to_string(const ParameterGroup& group);  // "weight_decay 0, lr_scale 10"; "": nothing
ParameterGroup group_of(std::span<const ParameterRule> rules, std::string_view name);

// The optimizer with these numbers in place of its own. Throws kInvalidArgument, beginning with `where`, for a number
// that it does not have, and for values that it does not take.
std::unique_ptr<OptimizerSpec> with_numbers(const OptimizerSpec& spec, const std::map<std::string, double>& numbers,
                                            const std::string& where);

// Throws kInvalidArgument, beginning with `where`, for a rule with numbers that this optimizer does not have or take.
void check_numbers(std::span<const ParameterRule> rules, const OptimizerSpec& spec, const std::string& where);

// Throws kInvalidArgument for a rule that matches none of these parameters, with their names; and for one that asks for
// numbers where all that it matches is frozen.
void check_matches(std::span<const ParameterRule> rules, const std::vector<std::string>& parameters);

// Names with `*` for the numbers in them, each once: "'h.*.ln_1.bias', 'wte.weight'".
std::string kinds_of_names(const std::vector<std::string>& names);

// "frozen: 1 parameter (512 values); weight_decay 0: 9 (1,152); the others: 8 (25,600)" of a training step; what has no
// update is frozen, whoever asked for it. Empty where all parameters are trained as the optimizer says.
std::string describe_groups(const Graph& step, std::span<const ParameterRule> rules);

}  // namespace nn
}  // namespace trireme

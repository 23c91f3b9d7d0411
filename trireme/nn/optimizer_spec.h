// OptimizerSpec: all that a program needs to know of an optimizer: its numbers, by name and with their values, and the
// update that it adds for a parameter. Each has one in its file of optimizers/, which optimizers/optimizer_list.cpp
// lists; nothing else names an optimizer (docs/howto/add_an_optimizer.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/base/type_name.h"
#include "trireme/ir/tensor.h"

namespace trireme::nn {

struct UpdateOperands {
  std::string name;  // of the parameter
  Tensor param, grad;
  Tensor lr;     // f32[]
  Tensor step;   // i64[], from 1
  Tensor scale;  // f32[], multiplies the gradient
  // Of a piece that a model cut by hand has of the parameter: the sum over all pieces of a scalar that each rank has
  // of its own. Empty: `param` is the whole.
  std::function<Tensor(const Tensor&)> sum_of_pieces = {};
  bool exact_norms = false;  // norms of `param` and the like have the same bits however it is cut; it is f32
};

// The update of one parameter while it is built.
class UpdateBuilder {
 public:
  explicit UpdateBuilder(UpdateOperands operands) : in(std::move(operands)) {}

  const UpdateOperands in;

  // What the optimizer keeps for the parameter from step to step: the input "<name>.<suffix>" of the parameter's type,
  // saved with it and cut as it is, which is zero before the first step.
  Tensor state(std::string_view suffix);
  // Of a parameter that the model looks rows up in and does nothing else with: how often the batch has looked up each,
  // f32[rows, 1]. Empty for all others.
  Tensor lookups() const;
  // The output that takes the place of the parameter, or of a state, after the step.
  void replace(const Tensor& old, const Tensor& value);

  const std::vector<ValueId>& states() const { return states_; }

 private:
  std::vector<ValueId> states_;
};

class OptimizerSpec {
 public:
  virtual ~OptimizerSpec() = default;
  virtual std::unique_ptr<OptimizerSpec> copy() const = 0;

  virtual std::string_view kind() const = 0;   // of train.optimizer, and of checkpoints
  virtual std::string_view title() const = 0;  // for a run's report
  // The struct that C++ programs give for it, "Sgd", and the spec of one with its defaults.
  virtual std::string_view struct_name() const = 0;
  virtual std::unique_ptr<OptimizerSpec> of_struct_defaults() const = 0;
  virtual double learning_rate() const = 0;
  virtual void set_learning_rate(double rate) = 0;
  // Its other numbers: keys of the section [train], except where another setting of that section has the name.
  virtual std::vector<Key> keys() = 0;
  // Throws kInvalidArgument for numbers that do not go together, each of which has been checked by itself. The message
  // begins with `where`, "configuration: train." or "optimizer: ", and a number's name.
  virtual void check(std::string_view /*where*/) const {}
  // Replaces the parameter and every state that it takes.
  virtual void update(UpdateBuilder& build) const = 0;
};

// What a spec of one optimizer need not write. `Numbers` is the struct of a C++ program, with `lr` among its members.
template <class Self, class Numbers>
class OptimizerSpecOf : public OptimizerSpec {
 public:
  explicit OptimizerSpecOf(const Numbers& numbers) : o_(numbers) {}

  std::unique_ptr<OptimizerSpec> copy() const override {
    return std::make_unique<Self>(static_cast<const Self&>(*this));
  }
  std::string_view struct_name() const override { return type_name<Numbers>(); }
  std::unique_ptr<OptimizerSpec> of_struct_defaults() const override { return std::make_unique<Self>(Numbers{}); }
  double learning_rate() const override { return o_.lr; }
  void set_learning_rate(double rate) override { o_.lr = rate; }

 protected:
  Numbers o_;
};

// Every optimizer, in the order of help.
std::vector<std::string> optimizer_kinds();
// With the numbers that a job has where its file names none. Throws kInvalidArgument with the optimizers for another.
std::unique_ptr<OptimizerSpec> optimizer_spec(std::string_view kind);

// Throws kInvalidArgument as OptimizerSpec::check does, for each number too.
void check_numbers(const OptimizerSpec& spec, const std::string& where);

// "AdamW, beta1 0.9, beta2 0.999, eps 1e-08, weight decay 0.01": numbers that are 0 are left out.
std::string describe(const OptimizerSpec& spec);

}  // namespace trireme::nn

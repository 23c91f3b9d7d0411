// ModelSpec: all that a job needs to know about a kind of model: its keys in the section [model] and their values, what
// it takes from the data, and how it is made, trained, cut and described. Each kind has one in its file of models/,
// which models/model_list.cpp lists; nothing else names a kind (docs/howto/add_a_model.md).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/nn/fields.h"
#include "trireme/nn/limits.h"
#include "trireme/nn/module.h"
#include "trireme/ops/loss/counted_loss.h"
#include "trireme/tensor/field.h"

namespace trireme::nn {

// What a model predicts, and so what a run counts and tells.
enum class Task {
  kTokens,        // the next token at each position: throughput in tokens, perplexity
  kHiddenTokens,  // tokens that are hidden, from those around them: the same
  kClasses,       // the class of each sample: throughput in samples, accuracy
};

// Whose decoder of tokens a model is, whatever its sizes: norms, positions, biases, activation functions.
enum class Decoder { kOther, kGpt2, kLlama };

// What parallel.tp, cp, ep, sp and vocabulary ask of a ready-made strategy. The batch is cut over dp*ep.
struct CutRequest {
  bool sequence = false;    // parallel.sp
  bool vocabulary = false;  // parallel.vocabulary
  // The axes over which positions lie between the products, and in attention in a ring, and those over which heads lie
  // there.
  std::string between, ring, heads;
};

// For every scope or op that matches the pattern, its cuts (parallel/parallel.h).
struct Cut {
  std::string pattern;
  std::string cuts;
};

// What ranks may share by the ready-made strategy, and the sizes that they must divide.
struct Cuttable {
  bool weights = false;    // over tp
  bool positions = false;  // over cp, and over tp with sp
  int64_t vocabulary = 0;  // tokens by which embedding, head and loss are cut over tp; 0: they are not
  bool mixture = false;    // experts over ep
  int64_t heads = 0;       // that attention may be cut by, and the key that says how many
  std::string heads_key = {};
  int64_t experts = 0;
  int64_t expert_groups = 1;
};

struct LossOptions {
  double label_smoothing = 0;
  bool in_parts = false;  // logits are cut over their classes
};

class ModelSpec {
 public:
  virtual ~ModelSpec() = default;
  virtual std::unique_ptr<ModelSpec> copy() const = 0;

  virtual std::string_view kind() const = 0;  // of model.kind
  virtual std::string_view doc() const = 0;   // a phrase, for people who choose
  virtual Task task() const = 0;
  // Whether the model can be asked for the next token alone, and then keeps what it needs of those before
  // (nn/decoding.h): a token's prediction depends on those before by causal attention and on nothing else.
  virtual bool can_decode() const { return false; }
  // For plans that are written as flags of other systems, which have names for those two (train/plan/exports).
  virtual Decoder decoder() const { return Decoder::kOther; }
  virtual std::vector<Key> keys() = 0;
  // Throws kInvalidArgument for values that do not go together; each key by itself has been checked.
  virtual void check() const {}
  virtual std::vector<KeyWithoutEffect> without_effect() const { return {}; }

  // The fields of a batch that the model and its loss read. The last one is the target that accuracy counts.
  virtual std::vector<FieldNeed> needs() const = 0;
  // For data with these fields, which fit the needs.
  virtual std::unique_ptr<Module> make(std::span<const FieldSpec> fields) const = 0;
  // A scalar, values that are averaged, or values of which only some count. The default: cross entropy of the one
  // prediction and the last field.
  virtual CountedLoss loss(const Fields& predicted, const Fields& batch, const LossOptions& options) const;
  // A bound from below, of the large matrices alone, for data with these fields.
  virtual double least_parameters(std::span<const FieldSpec> fields) const = 0;

  virtual Cuttable cuttable() const { return {}; }
  virtual std::vector<Cut> cuts(const CutRequest&) const { return {}; }

  // Keys of [model] by which it has one block of each kind that it has, in their order, and what stands before and
  // after them as it is: "layers=1". For specs with a key `layers`.
  virtual std::vector<std::string> one_block_of_each_kind() const { return {"layers=1"}; }

  virtual std::string describe() const = 0;  // for a run's report: "gpt, 4 layers of width 256, 4 heads"
};

// What a spec of one kind need not write.
template <class Self>
class ModelSpecOf : public ModelSpec {
 public:
  std::unique_ptr<ModelSpec> copy() const override { return std::make_unique<Self>(static_cast<const Self&>(*this)); }
};

// Every kind, in the order of help.
std::vector<std::string> model_kinds();
// The kind's spec with the defaults of its keys. Throws kInvalidArgument with the kinds for another.
std::unique_ptr<ModelSpec> model_spec(std::string_view kind);

void check_layers(const std::string& name, const KeyTarget& target);  // a KeyCheck: from 1 to kMostLayers

}  // namespace trireme::nn

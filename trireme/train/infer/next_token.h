// What a language model predicts after some tokens: from its graph of whole sequences, or token by token, keeping what
// it needs of the earlier ones. On one rank, or cut over several.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trireme/backend/device.h"
#include "trireme/base/thread_pool.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/exec/run/executor.h"
#include "trireme/nn/module.h"
#include "trireme/tensor/host_tensor.h"
#include "trireme/train/job/config.h"
#include "trireme/train/step/assembly.h"

namespace trireme {

// Gives the memory of a whole parameter by its name, or of state that a model has without an optimizer, such as a
// router's biases.
using ParametersByName = std::function<View(std::string_view)>;

// Throws kInvalidArgument if, with the cuts of the section [parallel], ranks would have parts of a sequence, or a
// sequence each: all of them predict a single sequence together.
void check_cuts_of_one_sequence(const JobConfig& config, int64_t ranks);

// The job with layers that compute in this type, whatever it was trained in, and read their parameters in it.
JobConfig predicting_in(DType type, JobConfig config);

// The model without a batch's other samples. `compute`: what its layers compute in, f32 or bf16, whatever it was
// trained in. Parameters that they read are of that type, so that nothing is rounded for each token: those of a
// checkpoint are rounded once, as they are read.
class NextTokens {
 public:
  // On this rank alone, by parameters that are of the types that predicting_in() gives them.
  NextTokens(const JobConfig& config, ParametersByName parameter, ThreadPool* pool, DType compute = DType::kF32);
  // On all ranks of the world (null: one), cut as the configuration's section [parallel] says, by tensor parallelism, a
  // pipeline, or both; each rank reads its pieces of the checkpoint, and keeps its pieces of keys and values. Every
  // call is collective, of the same tokens, and all ranks get the same logits. Throws as check_cuts_of_one_sequence.
  // Of more tokens than `most_tokens` nothing is asked: where they fit into the context, there is no graph of whole
  // sequences.
  NextTokens(const JobConfig& config, const ckpt::Reader& checkpoint, comm::World* world, ThreadPool* pool,
             int64_t most_tokens, DType compute = DType::kF32);

  int64_t context() const { return context_; }  // tokens that a prediction may depend on
  bool can_decode() const { return can_decode_; }

  // Logits [vocabulary] of what follows the last of the tokens, of which the last context() count. From as few
  // tokens as have not been seen yet, where the model can decode, all fit, and the tokens seen before are still the
  // first ones; otherwise from all. Many that have not been seen, as a prompt's, are read in blocks. Valid until the
  // next call.
  std::span<const float> logits(std::span<const int32_t> tokens);

  // Bytes that the ops of one token after `before` others read and write: parameters, of embeddings the rows that are
  // looked up, what is kept of those tokens, and little else. Throws kInvalidArgument where it is not decoded.
  double bytes_read(int64_t before);

 private:
  // A graph that has been compiled, and what runs it.
  struct Running {
    Compiled compiled;
    std::map<std::string, HostTensor, std::less<>> kept;  // that it keeps between runs
    std::unique_ptr<Executor> executor;
  };
  Executor& of_whole_sequences();
  Executor& of_next_token();
  Executor& of_block(int64_t tokens);  // always of as many
  // What a graph's state is: of the model, which gives it as it does parameters, or of the tokens seen, of which there
  // are none yet.
  enum class State { kOfModel, kOfTokens };
  // What it keeps is another's, if one is given.
  Running& run_of(std::unique_ptr<Running>& made, FunctionRef<Graph()> graph, State state,
                  const Executor* keeper = nullptr);
  Running& next_of() {
    return run_of(
        next_, [this] { return decoding_of(assembly_); }, State::kOfTokens);
  }
  std::span<const float> after_all(std::span<const int32_t> tokens);
  void read_in_blocks(std::span<const int32_t> tokens);
  // The tokens' run of a graph of as many next ones as `ids` has, of which the first one stands at `position`.
  void run_at(Executor& executor, std::span<int32_t> ids, int64_t position);

  ParametersByName parameter_;
  ThreadPool* pool_;
  std::unique_ptr<nn::Module> model_;
  Assembly assembly_;
  std::shared_ptr<Device> device_;
  std::string tokens_field_;
  int64_t context_;
  bool can_decode_;
  std::unique_ptr<Running> whole_, next_, block_;  // on one rank, made when they are first asked
  std::unique_ptr<Session> session_;         // of ranks: the next token, beside it whole sequences, or these alone
  std::unique_ptr<Session::Beside> beside_;  // of ranks: a block of tokens
  std::vector<int32_t> seen_;                // by next_ and block_, which keeps what next_ does, or by the ranks
  HostTensor window_;
  HostPiece prediction_;  // that the logits are of
};

}  // namespace trireme

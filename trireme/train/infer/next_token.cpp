#include "trireme/train/infer/next_token.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/exec/analysis/step_bytes.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"

namespace trireme {
namespace {

// Groups of experts' places are of the batch: of them a sequence has its share, or one.
JobConfig of_one_sequence(JobConfig config) {
  const int64_t groups = model_of(config).cuttable().expert_groups, batch = config.train.fit.batch;
  if (groups > 1) set_keys(config, {fmt::format("model.expert_groups={}", groups % batch == 0 ? groups / batch : 1)});
  return config;
}

JobConfig on_one_rank(JobConfig config) {
  config.parallel = {};
  return config;
}

// Of one sequence.
Assembly assembly_on(const JobConfig& config, nn::Module& model, int64_t ranks) {
  Assembly assembly = assembly_of(config, model, ranks);
  assembly.batch = batch_of(config, 1);
  return assembly;
}

Graph whole_sequence(const Assembly& assembly) {
  return inference_of(assembly, 1);
}

// Tokens that are read at once: a product of so many rows takes less time for each than one that waits for the matrix
// to be read. A block that is not full takes as long as one that is: an eighth of its tokens is worth it.
constexpr int64_t kBlock = 64;

// Checkpoints may hold a parameter with neighbouring dimensions as one: the same bytes.
View as_in(const Graph& graph, std::string_view name, View view) {
  const Input& input = graph.input(name);
  if (input.saved_as.rank() > 0 && view.type.shape == input.saved_as) view.type.shape = graph.type(input.value).shape;
  return view;
}

}  // namespace

JobConfig predicting_in(DType type, JobConfig config) {
  config.train.step.compute = type;
  config.train.step.parameters_in_compute_type = true;
  return config;
}

// One sequence can be cut neither by samples nor, token by token, by positions.
void check_cuts_of_one_sequence(const JobConfig& config, int64_t ranks) {
  const auto& p = config.parallel;
  const std::pair<bool, std::string> others[] = {
      {p.cp > 1, fmt::format("cp = {}", p.cp)},
      {p.ep > 1, fmt::format("ep = {}", p.ep)},
      {p.sp, "sp"},
      {p.mode == Mode::kHybrid || !p.layerwise.empty(), "a model that its own code cuts"},
      {p.mode == Mode::kAuto, "mode 'auto_parallel'"},
      {p.gradient_accumulation_steps > 1 || p.interleave > 1, "micro-batches"}};
  for (const auto& [is_given, what] : others) {
    require(!is_given,
            "one sequence is predicted, token by token: {} has nothing to cut there; use tp (parallel.tp), pp, or both",
            what);
  }
  if (!p.mesh.empty()) return;
  require(p.tp * p.pp == ranks,
          "one sequence is predicted by all ranks together, and parallel.tp = {} x pp = {} is {}, not {}; let their "
          "product be the ranks",
          p.tp, p.pp, p.tp * p.pp, ranks);
}

NextTokens::NextTokens(const JobConfig& config, ParametersByName parameter, ThreadPool* pool, DType compute)
    : parameter_(std::move(parameter)),
      pool_(pool),
      model_(make_model(of_one_sequence(config))),
      assembly_(assembly_on(predicting_in(compute, on_one_rank(of_one_sequence(config))), *model_, 1)),
      device_(make_device(assembly_.options.device)),
      tokens_field_(assembly_.batch.front().name),
      context_(assembly_.batch.front().type.shape[1]),
      can_decode_(model_of(config).can_decode()),
      window_({DType::kI32, {1, context_}}) {}

NextTokens::NextTokens(const JobConfig& config, const ckpt::Reader& checkpoint, comm::World* world, ThreadPool* pool,
                       int64_t most_tokens, DType compute)
    : pool_(pool),
      model_(make_model(of_one_sequence(config))),
      assembly_(assembly_on(predicting_in(compute, of_one_sequence(config)), *model_, world ? world->size() : 1)),
      tokens_field_(assembly_.batch.front().name),
      context_(assembly_.batch.front().type.shape[1]),
      can_decode_(model_of(config).can_decode()),
      window_({DType::kI32, {1, context_}}) {
  const int64_t ranks = world ? world->size() : 1;
  check_cuts_of_one_sequence(config, ranks);
  // What was said of ops of the training step that a token's graph has not, like its attention, follows from the rest.
  const std::map<std::string, Layout> none;
  CompileOptions how = compile_options(assembly_, assembly_.options.parallel, ranks, pool ? pool->size() : 1);
  how.stored = &none;
  std::optional<Graph> beside;
  if (can_decode_ && most_tokens > context_) beside = whole_sequence(assembly_);
  session_ =
      std::make_unique<Session>(can_decode_ ? decoding_of(assembly_) : whole_sequence(assembly_), std::move(beside),
                                Session::Options{.world = world, .pool = pool, .compile = how});
  for (const std::string& note : checkpoint.notes()) TRIREME_LOG(kWarn, "ckpt", "{}", note);
  for (const PlanInput& input : session_->persistent()) {
    if (input.role == Role::kState && can_decode_ && !checkpoint.has(input.name)) {  // keys and values, of no token yet
      session_->step().fill_inputs({&input.name, 1},
                                   [](std::span<const View> kept) { std::ranges::fill(kept[0].raw(), std::byte{0}); });
    } else {
      load_input(*session_, checkpoint, input, ckpt::TensorSource::Types::kConvertible);
    }
  }
}

NextTokens::Running& NextTokens::run_of(std::unique_ptr<Running>& made, FunctionRef<Graph()> graph, State state,
                                        const Executor* keeper) {
  if (made) return *made;
  CompileOptions how = compile_options(assembly_, assembly_.options.parallel, 1, pool_ ? pool_->size() : 1);
  how.external_parameters = true;
  made = std::make_unique<Running>(Running{compile(graph(), how), {}, nullptr});
  const Graph& compiled = made->compiled.graph;
  for (const Input& input : compiled.inputs()) {
    if (input.role != Role::kState || state != State::kOfTokens || keeper != nullptr) continue;
    HostTensor& zeros = made->kept.emplace(input.name, HostTensor(compiled.type(input.value))).first->second;
    std::ranges::fill(zeros.view().raw(), std::byte{0});
  }
  const auto external = [this, keeper, running = made.get()](std::string_view name) {
    if (keeper != nullptr && running->compiled.graph.input(name).role == Role::kState) return keeper->input(name);
    const auto kept = running->kept.find(name);
    return kept != running->kept.end() ? kept->second.view() : as_in(running->compiled.graph, name, parameter_(name));
  };
  made->executor = std::make_unique<Executor>(
      made->compiled.plan(), ExecutorOptions{.pool = pool_, .device = device_.get(), .external = external});
  return *made;
}

Executor& NextTokens::of_whole_sequences() {
  if (!session_)
    return *run_of(
                whole_, [this] { return whole_sequence(assembly_); }, State::kOfModel)
                .executor;
  if (!can_decode_) return session_->step();
  require(session_->has_evaluation(), "more tokens are asked for than was said: they are more than the context's {}",
          context_);
  return session_->evaluation();
}

Executor& NextTokens::of_next_token() {
  return session_ ? session_->step() : *next_of().executor;
}

Executor& NextTokens::of_block(int64_t tokens) {
  const auto graph = [&] { return reading_of(assembly_, tokens); };
  if (!session_) return *run_of(block_, graph, State::kOfTokens, next_of().executor.get()).executor;
  if (!beside_) beside_ = session_->beside(graph());
  return *beside_->executor;
}

std::span<const float> NextTokens::after_all(std::span<const int32_t> tokens) {
  Executor& executor = of_whole_sequences();
  const size_t count = std::min(tokens.size(), static_cast<size_t>(context_));
  const auto ids = window_.as<int32_t>();
  std::ranges::fill(ids, 0);
  std::ranges::copy(tokens.last(count), ids.begin());
  if (executor.has_input(tokens_field_)) executor.write_input(tokens_field_, window_.view());
  executor.run();
  const auto all = executor.output("prediction");
  const auto vocabulary = static_cast<size_t>(all.type.shape[2]);
  prediction_ = executor.read_output("prediction");
  return prediction_.as<float>().subspan((count - 1) * vocabulary, vocabulary);
}

void NextTokens::run_at(Executor& executor, std::span<int32_t> ids, int64_t position) {
  if (executor.has_input(tokens_field_)) {  // else it is another stage's
    executor.write_input(tokens_field_,
                         {reinterpret_cast<std::byte*>(ids.data()), {DType::kI32, {1, std::ssize(ids)}}});
  }
  if (executor.has_input("position")) executor.write_number("position", static_cast<int32_t>(position));
  executor.run();
}

// The last block is filled up, with tokens before it where there is no room behind it: what is kept of those is
// computed again, and what is kept of tokens that are none is written over before it is read.
void NextTokens::read_in_blocks(std::span<const int32_t> tokens) {
  const int64_t block = std::min(kBlock, context_);
  const int64_t count = std::ssize(tokens);
  for (auto seen = std::ssize(seen_); count - seen >= (block + 7) / 8; seen = std::ssize(seen_)) {
    const int64_t first = std::min(seen, context_ - block);
    const int64_t end = std::min(first + block, count);
    std::vector<int32_t> ids(tokens.begin() + first, tokens.begin() + end);
    ids.resize(static_cast<size_t>(block));
    run_at(of_block(block), ids, first);
    seen_.assign(tokens.begin(), tokens.begin() + end);
  }
}

std::span<const float> NextTokens::logits(std::span<const int32_t> tokens) {
  require(!tokens.empty(), "there is no token to predict the next one from");
  if (!can_decode_ || tokens.size() > static_cast<size_t>(context_)) return after_all(tokens);
  Executor& executor = of_next_token();
  const bool goes_on = seen_.size() < tokens.size() && std::ranges::equal(seen_, tokens.first(seen_.size()));
  if (!goes_on) seen_.clear();  // what is kept of later tokens is written over before it is read
  read_in_blocks(tokens.first(tokens.size() - 1));
  while (seen_.size() < tokens.size()) {
    int32_t token = tokens[seen_.size()];
    run_at(executor, {&token, 1}, std::ssize(seen_));
    seen_.push_back(token);
  }
  prediction_ = executor.read_output("prediction");
  return prediction_.as<float>();
}

double NextTokens::bytes_read(int64_t before) {
  require(can_decode_ && !session_ && before >= 0 && before < context_,
          "a token after {} others, of up to {}, is not decoded", before, context_);
  const Running& next = next_of();
  double kept = 0;
  for (const auto& [name, tensor] : next.kept) kept += static_cast<double>(tensor.type().bytes());
  const double unseen = 1 - static_cast<double>(before + 1) / static_cast<double>(context_);
  return step_bytes(next.compiled.program(), next.compiled.plan()).moved - kept * unseen;
}

}  // namespace trireme

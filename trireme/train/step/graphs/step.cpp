#include "trireme/train/step/graphs/step.h"

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/grad/gradients.h"
#include "trireme/op/exact_sum.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace {

nn::Fields add_batch(Graph& graph, const std::vector<BatchField>& batch) {
  nn::Fields out;
  for (const BatchField& field : batch) {
    out.add(field.name, {graph, graph.add_input(field.name, field.type, Role::kData, {}, {}, field.piece)});
  }
  return out;
}

void check_batch(const ModelFn& model, const std::vector<BatchField>& batch, const char* of) {
  require(!batch.empty(), "{}: the batch has no fields", of);
  require(
      !model.of_one_tensor() || batch.size() == 2,
      "{}: {} batch fields; it takes the input and the target, as the model is a function of one tensor. Of several "
      "fields it is a function of nn::Fields",
      of, batch.size());
}

// What the model gives, in f32 whatever it computes in.
nn::Fields predict(const ModelFn& model, const nn::Fields& batch) {
  nn::Fields out;
  for (const auto& [name, y] : model(batch)) out.add(name, y.dtype() == DType::kBF16 ? cast(y, DType::kF32) : y);
  require(out.size() > 0, "the model returns no predictions; return at least one tensor");
  return out;
}

// The mean over the batch. Of a model that is cut by hand it is a rank's term, and the mean of the terms is the
// batch's: the rank's own mean or, where only some values count and ranks have different numbers of them, its sum
// divided by what a rank has on average.
struct MeanLoss {
  Tensor value;
  Tensor mask;     // of what counts; empty: all
  Tensor counted;  // on all ranks, with those that several ranks hold; empty: all
};

MeanLoss mean_loss(const CountedLoss& loss, const HandCut& cut) {
  const Tensor& values = loss.values;
  if (!loss.counted) return {values.rank() == 0 ? values : mean(values), {}, {}};
  require(loss.counted.shape() == values.shape() && loss.counted.dtype() == DType::kBool,
          "the loss gives values {}, and {} says which of them count; it must be a bool of the same shape",
          to_string(values.type()), to_string(loss.counted.type()));
  Tensor counted = reduce_sum(cast(loss.counted, values.dtype()));
  Tensor divisor = counted;
  if (cut.mesh) {
    counted = sum_over_ranks(counted, *cut.mesh, 1);
    divisor = scale(counted, 1 / static_cast<double>(cut.mesh->devices()));
  }
  return {div(reduce_sum(values), divisor), loss.counted, counted};
}

// How many ranks are given the same part of the batch.
double holders_of(const BatchField& field, const Mesh& mesh) {
  if (field.piece.empty()) return static_cast<double>(mesh.devices());
  const Axes axes = field.piece.layout()->on(mesh).replica_axes(mesh);
  return static_cast<double>(mesh.size_of(axes));
}

// How many elements of the last field are where the prediction is largest: the only one, or that of the field's name.
// Where a mask of the target's shape says which count, of those.
Tensor count_correct(const nn::Fields& predicted, const nn::Fields& batch, const Tensor& mask) {
  const auto& [name, target] = batch.back();
  const Tensor best = argmax(predicted.size() == 1 ? predicted.front().second : predicted[name], -1);
  Tensor correct = equal(cast(best, target.dtype()), target);
  if (mask) {
    require(
        mask.shape() == target.shape(),
        "accuracy: the targets '{}' are {}, but the loss says with a mask {} which of its values count; the mask must "
        "have one element for each target",
        name, to_string(target.type()), to_string(mask.type()));
    correct = logical_and(correct, mask);
  }
  return reduce_sum(cast(correct, DType::kF32));
}

// The factor that brings the gradients' global norm down to the limit; also names the norm as an output.
Tensor clip(Graph& graph, const std::vector<Tensor>& parameters, const std::vector<Tensor>& grads,
            const StepOptions& options, const HandCut& cut) {
  graph.set_scope("clip");
  const double limit = options.clip_norm;
  const bool exact = options.numerics == Numerics::kInvariant;
  Tensor sum;
  int64_t elements = 0;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i]) continue;
    const Input& parameter = graph.inputs()[static_cast<size_t>(graph.value(parameters[i].id()).index)];
    elements += grads[i].shape().elements() * (parameter.piece.empty() || !cut.mesh ? 1 : cut.mesh->devices());
    require(!exact || elements <= kMostExactTerms,
            "the norm of all gradients (clip_norm = {}) of '{}' is a sum of more than {} squares, of which invariant "
            "numerics can make no exact sum; leave clipping out, or compute with fast numerics",
            limit, options.name, +kMostExactTerms);
    Tensor squares = exact ? exact_square_sum(grads[i]) : square_sum(grads[i]);
    if (cut.mesh) squares = sum_over_pieces(squares, parameters[i], *cut.mesh);
    sum = sum ? add(sum, squares) : squares;
  }
  const Tensor norm = sqrt(exact ? total_of_digits(sum) : sum);
  graph.add_output("grad_norm", norm.id());
  return clamp(scale(reciprocal(norm + 1e-6), limit), 0, 1);  // as torch.nn.utils.clip_grad_norm_
}

void add_buffer_updates(nn::Trace& trace) {
  Graph& graph = trace.graph();
  for (const auto& [buffer, next] : trace.buffer_values())
    graph.add_output(graph.inputs()[static_cast<size_t>(graph.value(buffer.id()).index)].name, next.id(), buffer.id());
}

std::string name_of(const Tensor& input) {
  const Graph& graph = input.graph();
  return graph.inputs()[static_cast<size_t>(graph.value(input.id()).index)].name;
}

// What modules ask, then the options.
std::vector<ParameterRule> rules_of(const nn::Trace& trace, const Optimizer& optimizer, const StepOptions& options) {
  std::vector<ParameterRule> out;
  for (const std::string& pattern : trace.frozen()) out.emplace_back(pattern + " = frozen");
  out.insert(out.end(), options.groups.begin(), options.groups.end());
  nn::check_numbers(out, optimizer.spec(), "parameter group ");
  std::vector<std::string> names;
  for (const Tensor& parameter : trace.parameters()) names.push_back(name_of(parameter));
  nn::check_matches(out, names);
  return out;
}

std::vector<Tensor> trained_of(const nn::Trace& trace, std::span<const ParameterRule> rules, const std::string& model) {
  std::vector<Tensor> out;
  for (const Tensor& parameter : trace.parameters()) {
    if (!nn::group_of(rules, name_of(parameter)).frozen) out.push_back(parameter);
  }
  require(!trace.parameters().empty(), "the model '{}' has no parameters to train", model);
  require(!out.empty(),
          "all {} parameters of '{}' are frozen, so there is nothing to train; let a rule say \"trained\"",
          trace.parameters().size(), model);
  return out;
}

// Each parameter with a gradient by the numbers of its group.
void add_updates(nn::Trace& trace, const std::vector<Tensor>& parameters, const std::vector<Tensor>& grads,
                 const Optimizer& optimizer, std::span<const ParameterRule> rules, const StepOptions& options,
                 const HandCut& cut) {
  Graph& graph = trace.graph();
  const Tensor step = trace.step();
  const Tensor lr(graph, graph.add_input("lr", {DType::kF32, {}}, Role::kSchedule));
  graph.set_phase(Phase::kUpdate);
  const Tensor factor =
      options.clip_norm > 0 ? clip(graph, parameters, grads, options, cut) : constant(graph, {DType::kF32, {}}, 1);
  std::map<double, Tensor> rates{{1, lr}};
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!grads[i]) continue;
    const Input& input = graph.inputs()[static_cast<size_t>(graph.value(parameters[i].id()).index)];
    const nn::ParameterGroup group = nn::group_of(rules, input.name);
    Tensor& rate = rates[group.lr_scale];
    graph.set_scope("update");
    if (!rate) rate = scale(lr, group.lr_scale);
    nn::UpdateOperands operands{input.name, parameters[i], grads[i], rate, step, factor};
    operands.exact_norms = options.numerics == Numerics::kInvariant;
    if (cut.mesh && !input.piece.empty() && !input.piece.is_own()) {
      operands.sum_of_pieces = [&, i](const Tensor& x) { return sum_over_pieces(x, parameters[i], *cut.mesh); };
    }
    nn::add_update(nn::with_numbers(optimizer.spec(), group.numbers, "parameter group: "), operands);
  }
}

// What a model is put to use for: of whole sequences, or of the next tokens of one.
struct Use {
  std::string_view name;
  int64_t kept_tokens = 0;
  bool predicts = true;
};
Graph graph_of(const Use& use, const ModelFn& model, const std::vector<BatchField>& batch, const StepOptions& options) {
  Graph graph(options.name + "." + std::string(use.name));
  const nn::Fields fields = add_batch(graph, batch);
  nn::Trace trace(graph, {.training = false,
                          .compute = options.compute,
                          .parameters_in_compute_type = options.parameters_in_compute_type,
                          .kept_tokens = use.kept_tokens});
  for (const auto& [name, y] : predict(model, fields)) {
    if (use.predicts) graph.add_output(name, y.id());
  }
  if (use.kept_tokens > 0) add_buffer_updates(trace);
  return without_dead_nodes_and_inputs(graph);  // targets are not there when a model is put to use
}

}  // namespace

Graph training_step(const ModelFn& model, const LossFn& loss, const std::vector<BatchField>& batch,
                    const Optimizer& optimizer, const StepOptions& options, const HandCut& cut) {
  check_batch(model, batch, "training_step");
  require(!options.parameters_in_compute_type, "training_step: parameters that are trained are f32");
  Graph graph(options.name);
  const nn::Fields fields = add_batch(graph, batch);
  nn::Trace trace(graph, {.training = true, .seed = options.seed, .compute = options.compute});
  Tensor value = mean_loss(loss(predict(model, fields), fields), cut).value;
  if (options.summed_parts != 1) value = scale(value, static_cast<double>(options.summed_parts));
  const auto ranks = static_cast<double>(cut.mesh ? cut.mesh->devices() : 1);
  graph.add_output("loss", (cut.mesh ? sum_over_ranks(value, *cut.mesh, ranks) : value).id());
  Tensor objective = value;
  for (const Tensor& extra : trace.losses()) {
    objective =
        add(objective, options.summed_parts == 1 ? extra : scale(extra, static_cast<double>(options.summed_parts)));
  }
  if (options.gradient_scale != ranks) objective = scale(objective, options.gradient_scale / ranks);

  for (const auto& [buffer, next] : trace.buffer_values()) {
    graph.add_output(graph.inputs()[static_cast<size_t>(graph.value(buffer.id()).index)].name,
                     (cut.mesh ? mean_over_holders(next, buffer, *cut.mesh) : next).id(), buffer.id());
  }

  const std::vector<ParameterRule> rules = rules_of(trace, optimizer, options);
  const std::vector<Tensor> parameters = trained_of(trace, rules, options.name);
  mark_layerwise(trace.parameters(), cut.layerwise);
  std::vector<Tensor> grads = gradients(objective, parameters);
  require(std::any_of(grads.begin(), grads.end(), [](const Tensor& grad) { return static_cast<bool>(grad); }),
          "the loss of '{}' does not depend on any parameter{}, so there is nothing to train; compute it from what the "
          "model "
          "predicts",
          options.name, parameters.size() < trace.parameters().size() ? " that is trained" : "");
  for (size_t i = 0; cut.mesh && i < grads.size(); ++i) {
    if (grads[i]) grads[i] = sum_over_holders(grads[i], parameters[i], *cut.mesh);
  }

  add_updates(trace, parameters, grads, optimizer, rules, options, cut);
  return without_dead_nodes(graph);
}

Graph evaluation(const ModelFn& model, const LossFn& loss, const std::vector<BatchField>& batch,
                 const StepOptions& options, const HandCut& cut) {
  check_batch(model, batch, "evaluation");
  Graph graph(options.name + ".evaluation");
  const nn::Fields fields = add_batch(graph, batch);
  nn::Trace trace(graph, {.training = false, .compute = options.compute});
  const nn::Fields predicted = predict(model, fields);
  mark_layerwise(trace.parameters(), cut.layerwise);
  auto [value, mask, counted] = mean_loss(loss(predicted, fields), cut);
  Tensor correct = options.accuracy ? count_correct(predicted, fields, mask) : Tensor{};
  if (cut.mesh) {
    const Mesh& mesh = *cut.mesh;
    const double holders = holders_of(batch.back(), mesh);
    value = sum_over_ranks(value, mesh, static_cast<double>(mesh.devices()));
    if (counted && holders != 1) counted = scale(counted, 1 / holders);
    if (correct) correct = sum_over_ranks(correct, mesh, holders);
  }
  graph.add_output("loss", value.id());
  if (counted) graph.add_output("counted", cast(counted, DType::kF32).id());
  if (correct) graph.add_output("correct", correct.id());
  return without_dead_nodes(graph);
}

Graph inference(const ModelFn& model, const std::vector<BatchField>& batch, const StepOptions& options) {
  return graph_of({"inference"}, model, batch, options);
}

Graph decoding(const ModelFn& model, const std::vector<BatchField>& batch, int64_t kept_tokens,
               const StepOptions& options) {
  require(kept_tokens > 0, "decoding: {} tokens are kept; it must be 1 or more", kept_tokens);
  return graph_of({"decoding", kept_tokens}, model, batch, options);
}

Graph reading(const ModelFn& model, const std::vector<BatchField>& batch, int64_t kept_tokens,
              const StepOptions& options) {
  require(kept_tokens > 0, "reading: {} tokens are kept; it must be 1 or more", kept_tokens);
  return graph_of({"reading", kept_tokens, false}, model, batch, options);
}

const Tensor& LossFn::only_of(const nn::Fields& predicted) {
  require(predicted.size() == 1,
          "the loss is a function of one prediction and one target, and the model predicts {} ({}); take a function of "
          "nn::Fields",
          predicted.size(), predicted.names());
  return predicted.front().second;
}

}  // namespace trireme

#include "trireme/train/infer/predictor.h"

#include <map>

#include "trireme/base/error.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/step/assembly.h"

namespace trireme {
namespace {

Parallel parallel_for_predictions(const TrainerOptions& options) {
  require(options.mode != Mode::kHybrid && options.parallel.layerwise.empty(),
          "predictor: in mode hybrid_parallel, and with layerwise parameters, the model's own code cuts it, and each "
          "rank has a prediction of its own; use another mode");
  Parallel out = options.parallel;
  out.follow_requests = options.mode == Mode::kSemiAuto || options.mode == Mode::kAuto;
  if (options.mode == Mode::kAuto && out.search.kind == SearchKind::kNone)
    out.search.kind = SearchKind::kRecursiveProgramming;
  return out;
}

}  // namespace

Predictor::Predictor(const ModelFn& model, std::vector<BatchField> batch, const ckpt::Reader& checkpoint,
                     const TrainerOptions& options, comm::World* world, ThreadPool* pool)
    : batch_(std::move(batch)) {
  const Assembly assembly{.model = model, .loss = {}, .optimizer = Sgd{}, .batch = batch_, .options = options};
  const std::map<std::string, Layout> none;  // so that rules for what only training has are passed over
  CompileOptions how =
      compile_options(assembly, parallel_for_predictions(options), world ? world->size() : 1, pool ? pool->size() : 1);
  how.stored = &none;
  session_ = std::make_unique<Session>(inference(model, batch_, options.step), std::nullopt,
                                       Session::Options{.world = world, .pool = pool, .compile = std::move(how)});
  load_session(*session_, checkpoint);
}

void Predictor::run(std::span<const View> batch) {
  require(batch.size() == batch_.size(), "predictor: {} fields; the batch has {}", batch.size(), batch_.size());
  Executor& executor = session_->step();
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchField& field = batch_[i];
    if (!executor.has_input(field.name)) continue;
    require(batch[i].type == field.type, "predictor: '{}' is {}; it was said to be {}", field.name,
            to_string(batch[i].type), to_string(field.type));
    const Box box = executor.input_box(field.name);
    const HostTensor piece({field.type.dtype, box.size});
    copy_region(batch[i], Box::whole(field.type.shape), piece.view(), box, box);
    executor.write_input(field.name, piece.view());
  }
  executor.run();
}

HostPiece Predictor::prediction(std::string_view name) const {
  return session_->step().read_output(name);
}

}  // namespace trireme

#include "trireme/train/evaluate.h"
#include "trireme/train/run_impl.h"

namespace trireme {

int64_t Run::evaluation_batch() const { return evaluation_batch_of(fit_); }

void Run::evaluate(Recorder& recorder) {
  const Evaluator evaluator(session_.evaluation(), fit_.validation, evaluation_batch(), options_.accuracy);
  const EvaluationResult found = evaluator.run(fit_.eval_batches);
  result_.validation_loss = found.loss;
  result_.accuracy = found.accuracy;
  validated_ = result_.step;
  recorder.validation(result_.step, found.loss, options_.accuracy ? found.accuracy : -1);
}

}  // namespace trireme

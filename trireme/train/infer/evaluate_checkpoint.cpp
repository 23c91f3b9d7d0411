#include "trireme/train/infer/evaluate_checkpoint.h"

#include "trireme/backend/device.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/step/assembly.h"

namespace trireme {

EvaluationResult evaluate_checkpoint(const ckpt::Reader& reader, const JobConfig& config,
                                     const data::SourcePtr& samples, const Job& job) {
  const auto model = make_model(config);
  Assembly assembly = assembly_of(config, *model, job.size());
  assembly.evaluation_batch.clear();  // batches are train.batch's, whatever the job's validation has
  CompileOptions how =
      compile_options(assembly, graphs_of(assembly, job.size()).parallel, job.size(), job.pool().size());
  Session session(evaluation_of(assembly, job.size()), std::nullopt,
                  {.world = job.world(), .pool = &job.pool(), .compile = std::move(how)});
  load_session(session, reader);
  return Evaluator(session.step(), samples, config.train.fit.batch, assembly.options.step.accuracy).run();
}

}  // namespace trireme

#include "trireme/exec/run/rank_of_mesh.h"

#include "trireme/base/counted.h"
#include "trireme/base/error.h"

namespace trireme {

int64_t rank_of_mesh(const ExecutionPlan& plan, comm::World* world) {
  const int64_t ranks = world ? world->size() : 1;
  const int64_t planned = plan.mesh.devices() * plan.crews;
  require(ranks == planned, "the plan is for {} ({}'{}'); this job has {}", counted(planned, "rank"),
          plan.crews > 1 ? fmt::format("{} crews of ", plan.crews) : "", to_string(plan.mesh), ranks);
  const int64_t of_world = world ? world->rank() : 0;
  require(of_world / plan.mesh.devices() == plan.crew,
          "rank {} is of crew {} (crews of {} ranks); the plan is for crew {}", of_world,
          of_world / plan.mesh.devices(), plan.mesh.devices(), plan.crew);
  return of_world % plan.mesh.devices();
}

}  // namespace trireme

// The certificate of an exact plan (planner/certificate/certificate.h): making it from what the search found and the
// tables that it asked for, and comparing it with a plan's file and with a job.
#pragma once

#include "trireme/planner/certificate/certificate.h"
#include "trireme/train/plan/exact/exact_plan.h"
#include "trireme/train/plan/exact/exact_setting.h"

namespace trireme {

// `request` is the one that the plan answers.
Certificate certificate_of(const ExactPlan& plan, const PlanRequest& request);

// Which of the certificate's best ways the file has, apart from keys that are the job's own (keys_of_places). Throws
// kInvalidArgument, naming what differs, if it has none of them.
size_t check_certified_plan(const Certificate& certificate, const PlanFile& plan,
                            const std::vector<std::string>& of_job = {});

// A job that certificates are compared with. What was compiled for one serves the next.
class CertifiedJob {
 public:
  explicit CertifiedJob(const PlanRequest& request);

  // Throws kInvalidArgument, naming what differs, if the job's step, machine or ranks are not those of the certificate,
  // or if one of its tables differs from what compiling gives. All tables are compiled again.
  void check(const Certificate& certificate);

 private:
  ExactSetting setting_;
  Certificate of_job_;  // without what a search finds
  PartPricer pricer_;
};

}  // namespace trireme

// What a training run returns.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "trireme/train/report/communication_summary.h"

namespace trireme {

struct FitResult {
  int64_t step = 0;  // the last done
  double loss = 0;   // of the last step
  // Of this call's last validation; NaN: nothing was validated.
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  // The same, in [0, 1]; NaN also without StepOptions::accuracy.
  double accuracy = std::numeric_limits<double>::quiet_NaN();
  bool nothing_left = false;  // the checkpoint resumed from is at the last step, or beyond
  bool interrupted = false;   // a signal asked to stop before the last step; the run is saved and can be resumed
  int signal = 0;             // that asked to stop, the last step done or not; 0: none
  int exit_code() const { return signal == 0 ? 0 : 128 + signal; }  // what the program should end with
  std::string checkpoint;                                           // the newest one's folder
  bool stopped_early = false;  // after `patience` validations; nothing_left says so too where it was before this call
  int64_t best_step = -1;      // of the validation that found the best; -1: none has been
  double best = 0;             // its loss or accuracy
  std::string report;          // report.html's path; "": none, or it cannot be written
  std::string trace;           // that was asked for, if it is written
  CommunicationSummary communication = {};  // of a mean step
};

}  // namespace trireme

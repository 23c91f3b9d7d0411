// This process as a rank of its job, however it was started (start.h), and how it joins the others.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "trireme/base/error.h"
#include "trireme/comm/comm.h"
#include "trireme/launch/start/start.h"

namespace trireme::launch {

// Reads the environment; one rank of one without any of a launcher's variables. The secret comes
// from TRIREME_SECRET_FILE, which others must not be able to read, or from TRIREME_SECRET.
RankInfo find_rank();

// Tells the launcher why this rank ends, with the error's kind and whole text. True when a launcher
// listens (it shows the error, once for the job); false when the caller should print it.
bool report_failure(const Error& error);

// Counts a step of training for the launcher, which tells hangs from slowness by it.
void note_step();

// Tells the launcher that this rank ends cleanly because a signal asked for it; `sent_here`: this process was sent it.
void note_interrupt(int signal, bool sent_here);
// Whether SIGUSR1 asks this rank to save, from now on: only then does the launcher pass it on.
void note_saves_when_asked(bool saves);

struct JoinOptions {
  std::string transport = "auto";  // as in comm::WorldOptions
  bool insecure = false;           // ranks on several hosts may meet without a secret, as TRIREME_INSECURE
};

// Joins the ranks of the job at the store that the launcher serves, or else at one of rank 0's
// (rendezvous.h). Says in one line of the log how this process was started and where it met the
// others. Waits for them for TRIREME_START_TIMEOUT seconds.
std::unique_ptr<comm::World> join(const RankInfo& info, const JoinOptions& options = {});

}  // namespace trireme::launch

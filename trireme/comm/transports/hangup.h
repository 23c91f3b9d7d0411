// SIGHUP, which a closed terminal sends. UCX installs a handler for it before main() begins, to log more from then on.
// So a program that is linked with UCX neither ends when its terminal closes nor sees that nohup had it ignore the
// signal.
#pragma once

namespace trireme::comm {

// What this process was started with applies to SIGHUP again. Nothing in a build without UCX, or when the program has a
// handler.
void take_hangup_from_ucx();

}  // namespace trireme::comm

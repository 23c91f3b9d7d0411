// SIGHUP, which a closed terminal sends. UCX takes it before main() begins, to log more from then on: a program that is
// linked with it neither ends by a closed terminal nor sees that nohup had it ignore one.
#pragma once

namespace trireme::comm {

// What this process was started with applies to SIGHUP again. Nothing in a build without UCX, or when the program has a
// handler.
void take_hangup_from_ucx();

}  // namespace trireme::comm

// Calls: equal collectives of a plan are described once, and actions refer to them.
#pragma once

#include <cstdint>

#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// Which collectives that are equal in kind, attributes and types become calls.
struct ReuseOptions {
  int64_t limit = 0;  // the most actions that name a call; the first of the step do; 0: none
  int64_t above = 1;  // those that stand in the step more often than this
};
inline constexpr int64_t kUsualReuseLimit = 1000;

// What calls save. A stream is what can carry so many collectives (ReuseOptions::above); equal ones of one call share
// one.
struct ReuseSavings {
  int64_t actions = 0;  // that name a call
  int64_t calls = 0;
  int64_t plan_bytes = 0;  // of the plan's text
  int64_t streams_before = 0, streams_after = 0;
};

// Makes calls of the plan's equal collectives. The plan has none before.
void reuse_collectives(ExecutionPlan& plan, const ReuseOptions& options);
// What the plan's calls save, where a stream carries so many collectives.
ReuseSavings reuse_savings(const ExecutionPlan& plan, int64_t per_stream);

}  // namespace trireme

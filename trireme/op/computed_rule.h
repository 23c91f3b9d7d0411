// The sharding rule of a call: the text that its op gives (sharding_rule.h), parsed for the call's types. Calls of the
// same op with the same attributes on the same types share one rule, so it is parsed once for all layers of a model.
#pragma once

#include <memory>

#include "trireme/op/op_def.h"

namespace trireme {

using RuleOf = std::shared_ptr<const ShardingRule>;

// Never null; nothing may be cut where the op has no rule. Throws what the op's facet throws. May be called by several
// threads.
RuleOf computed_rule(const OpDef& op, const TypeArgs& types);
RuleOf computed_rule(const Graph& graph, const Node& node);  // of its call

}  // namespace trireme

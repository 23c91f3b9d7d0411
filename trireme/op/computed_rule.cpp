#include "trireme/op/computed_rule.h"

#include <mutex>

#include "trireme/op/call_kinds.h"

namespace trireme {
namespace {

constexpr size_t kMostKept =
    4096;  // of one job some hundreds; programs that read any number of graphs forget the older ones

// The rules of all kinds of calls that were asked for.
class KnownRules {
 public:
  // Null: it is not known yet.
  RuleOf find(const OpDef& op, const TypeArgs& types) {
    const std::lock_guard lock(mutex_);
    const Known& known = known_of(op, types);
    return known.made_by == op.shard.get() ? known.rule : nullptr;
  }
  void add(const OpDef& op, const TypeArgs& types, const RuleOf& made) {
    const std::lock_guard lock(mutex_);
    known_of(op, types) = {made, op.shard.get()};
  }

 private:
  struct Known {
    RuleOf rule;
    ShardFn* made_by = nullptr;  // an op that lies where another one lay has a rule of its own
  };

  Known& known_of(const OpDef& op, const TypeArgs& types) {
    if (kinds_.size() >= kMostKept) {
      kinds_ = CallKinds();
      known_.clear();
    }
    const auto kind = static_cast<size_t>(kinds_.of(op, types));
    if (known_.size() <= kind) known_.resize(kind + 1);
    return known_[kind];
  }

  std::mutex mutex_;
  CallKinds kinds_;
  std::vector<Known> known_;  // by kind
};

}  // namespace

RuleOf computed_rule(const OpDef& op, const TypeArgs& types) {
  static KnownRules known;
  if (RuleOf rule = known.find(op, types)) return rule;
  RuleOf rule =
      std::make_shared<const ShardingRule>(op.shard ? op.shard.get()(types) : replicate_rule(types.in, types.out));
  known.add(op, types, rule);
  return rule;
}

}  // namespace trireme

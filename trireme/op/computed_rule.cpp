#include "trireme/op/computed_rule.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

namespace trireme {
namespace {

constexpr size_t kMostKept =
    4096;  // of one job some hundreds; programs that read any number of graphs forget the older ones

void add_bytes(std::string& key, int64_t number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  key.append(bytes, sizeof number);
}

// All that a rule is computed from.
std::string key_of(const OpDef& op, const TypeArgs& types) {
  std::string key;
  add_bytes(key, static_cast<int64_t>(reinterpret_cast<uintptr_t>(op.shard.get())));
  for (const std::span<const TensorType> side : {types.in, types.out}) {
    add_bytes(key, static_cast<int64_t>(side.size()));
    for (const TensorType& type : side) {
      add_bytes(key, static_cast<int64_t>(type.dtype));
      add_bytes(key, type.shape.rank());
      for (const int64_t size : type.shape) add_bytes(key, size);
    }
  }
  return key + types.attrs.text();
}

}  // namespace

RuleOf computed_rule(const OpDef& op, const TypeArgs& types) {
  static std::mutex mutex;
  static std::unordered_map<std::string, RuleOf> known;
  std::string key = key_of(op, types);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  RuleOf rule =
      std::make_shared<const ShardingRule>(op.shard ? op.shard.get()(types) : replicate_rule(types.in, types.out));
  const std::lock_guard lock(mutex);
  if (known.size() >= kMostKept) known.clear();
  return known.try_emplace(std::move(key), std::move(rule)).first->second;
}

}  // namespace trireme

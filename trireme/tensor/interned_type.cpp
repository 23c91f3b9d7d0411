#include "trireme/tensor/interned_type.h"

#include <array>
#include <mutex>
#include <unordered_set>

namespace trireme {
namespace {

struct TypeHash {
  size_t operator()(const TensorType& type) const {
    uint64_t out = static_cast<uint64_t>(type.dtype) << 8U | static_cast<uint64_t>(type.shape.rank());
    for (const int64_t size : type.shape) out = (out ^ static_cast<uint64_t>(size)) * 0x9e3779b97f4a7c15U;
    return out ^ out >> 32U;
  }
};

// Of all threads.
const TensorType& find_or_add(const TensorType& type) {
  static std::mutex mutex;
  static auto* const all = new std::unordered_set<TensorType, TypeHash>;  // for as long as anybody may ask
  const std::lock_guard lock(mutex);
  return *all->insert(type).first;
}

}  // namespace

const TensorType& interned(const TensorType& type) {
  thread_local std::array<const TensorType*, 512> seen{};  // so that what a thread has asked for takes no lock
  const TensorType*& known = seen[TypeHash()(type) % seen.size()];
  if (known == nullptr || !(*known == type)) known = &find_or_add(type);
  return *known;
}

}  // namespace trireme

#include "trireme/comm/stores/memory_store.h"

#include <charconv>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

constexpr size_t kMaxValue = size_t{1} << 20;

}  // namespace

void MemoryStore::set(std::string_view key, std::string_view value) {
  require(value.size() <= kMaxValue, "store: the value of '{}' has {} bytes; at most {} are allowed", key, value.size(),
          kMaxValue);
  {
    const std::lock_guard lock(mutex_);
    values_.insert_or_assign(std::string(key), std::string(value));
  }
  changed_.notify_all();
}

std::string MemoryStore::get(std::string_view key, std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  const auto there = [&] { return !abort_reason_.empty() || values_.contains(key); };
  if (!changed_.wait_for(lock, deadline, there)) {
    fail(ErrorKind::kTimeout, "store: key '{}' did not appear within {} ms; the rank that sets it is missing", key,
         deadline.count());
  }
  if (!abort_reason_.empty()) fail(ErrorKind::kComm, "store: {}", abort_reason_);
  return values_.find(key)->second;
}

int64_t MemoryStore::add(std::string_view key, int64_t amount) {
  int64_t value = 0;
  {
    const std::lock_guard lock(mutex_);
    std::string& text = values_.try_emplace(std::string(key), "0").first->second;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    require(parsed.ec == std::errc{} && parsed.ptr == end,
            "store: key '{}' holds '{}', which is not a number to add to", key, text);
    require(!__builtin_add_overflow(value, amount, &value),
            "store: key '{}' holds '{}'; with what is added it is more than an int64 holds", key, text);
    text = std::to_string(value);
  }
  changed_.notify_all();
  return value;
}

std::shared_ptr<void> MemoryStore::object(std::string_view key, const std::function<std::shared_ptr<void>()>& make) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<void>& object = objects_[std::string(key)];
  if (!object) object = make();
  return object;
}

void MemoryStore::abort(std::string_view reason) {
  {
    const std::lock_guard lock(mutex_);
    if (abort_reason_.empty()) abort_reason_ = reason;
  }
  changed_.notify_all();
}

std::shared_ptr<Store> memory_store() {
  return std::make_shared<MemoryStore>();
}

}  // namespace trireme::comm

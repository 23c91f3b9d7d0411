// MemoryStore: the board of ranks that are threads of one process. Besides values it holds objects,
// by which such ranks reach each other's memory.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>

#include "trireme/comm/store.h"

namespace trireme::comm {

class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds deadline) override;
  int64_t add(std::string_view key, int64_t amount) override;

  // The object under this key; the first caller makes it.
  std::shared_ptr<void> object(std::string_view key, const std::function<std::shared_ptr<void>()>& make);
  // Every wait, present and to come, ends with a kComm error of this text.
  void abort(std::string_view reason);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<std::string, std::shared_ptr<void>, std::less<>> objects_;
  std::string abort_reason_;
};

}  // namespace trireme::comm

// Store: a small key-value board on which ranks leave addresses for each other before they can talk.
// Values are at most 1 MiB. `get` waits for the key; every wait has a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::comm {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(std::string_view key, std::string_view value) = 0;
  // Throws kTimeout naming the key when it does not appear in time.
  virtual std::string get(std::string_view key, std::chrono::milliseconds deadline) = 0;
  // Adds and returns the new value (a missing key counts as 0): counters for barriers and names.
  virtual int64_t add(std::string_view key, int64_t amount) = 0;
};

// A board inside this process, for ranks that are threads.
std::shared_ptr<Store> memory_store();

}  // namespace trireme::comm

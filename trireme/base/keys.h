// Key: one setting of a kind of model, of data or of optimizer: its name in a job's file, where its value is, what it
// is for and which values it may have. Copied: an owning pointer to a thing of some kind, whose copy owns a copy of the
// thing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace trireme {

using KeyTarget =
    std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*, std::vector<int64_t>*>;

// Throws kInvalidArgument for a value that the key may not have. The message begins with `name`, which says where the
// key is from: "configuration: model.layers", "optimizer: beta1".
using KeyCheck = void (*)(const std::string& name, const KeyTarget& target);

struct Key {
  std::string_view name;  // without its section: "layers" of "model.layers"
  KeyTarget target;       // holds the default until the key is read
  std::string_view doc;
  KeyCheck check = nullptr;  // null: any value
};

// A key that changes nothing beside the values of others, and beside which: {"top_k", "model.experts = 0"}.
struct KeyWithoutEffect {
  std::string_view name;
  std::string reason;
};

// What a size of a tensor can be: tokens, labels and positions are numbered in 32 bits.
inline constexpr int64_t kMostOfASize = (int64_t{1} << 31) - 1;

// Throw kInvalidArgument, "NAME = 0; it must be 1 or more". Of a list each number is looked at.
void check_size(const std::string& name, const KeyTarget& target);          // a size of a tensor, 1 or more
void check_size_or_0(const std::string& name, const KeyTarget& target);     // the same, or 0
void check_count(const std::string& name, const KeyTarget& target);         // 1 or more
void check_share(const std::string& name, const KeyTarget& target);         // from 0 to below 1, also in f32
void check_not_negative(const std::string& name, const KeyTarget& target);  // 0 or more, within what f32 holds
void check_finite(const std::string& name, const KeyTarget& target);        // a number that f32 holds

// "configuration: model.kind = 'gtp'; it must be one of 'gpt' or 'mlp'. Did you mean 'gpt'?"
[[noreturn]] void fail_not_one_of(const std::string& name, const std::string& value,
                                  const std::vector<std::string>& candidates);

template <class T>
class Copied {
 public:
  Copied(std::unique_ptr<T> made) : made_(std::move(made)) {}  // NOLINT: a value of the kind that was made
  Copied(const Copied& other) : made_(other.made_->copy()) {}
  Copied(Copied&&) noexcept = default;
  Copied& operator=(const Copied& other) {
    if (this != &other) made_ = other.made_->copy();
    return *this;
  }
  Copied& operator=(Copied&&) noexcept = default;
  ~Copied() = default;

  T& operator*() { return *made_; }
  const T& operator*() const { return *made_; }
  T* operator->() { return made_.get(); }
  const T* operator->() const { return made_.get(); }

 private:
  std::unique_ptr<T> made_;
};

}  // namespace trireme

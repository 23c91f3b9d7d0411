// Key: one setting of a job: its name in the job's file, where its value is stored, what it is for, and which values it
// may have. Whoever owns a setting has its row beside the struct that holds the value (docs/howto/add_a_setting.md).
// Copied: an owning pointer to an object; a copy of the pointer owns a copy of the object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace trireme {

// A value that a file holds as text and a program as something else: a name of an enumeration, a mesh.
struct TextOf {
  std::function<std::string()> text;
  // Throws kInvalidArgument for a text that stands for nothing; `name` is the key's, "parallel.mode".
  std::function<void(const std::string& name, const std::string& text)> set;
  bool was_switch = false;  // a file may have true and false for it too, read as these texts
};

// The same of a list.
struct TextsOf {
  std::function<std::vector<std::string>()> texts;
  std::function<void(const std::string& name, const std::vector<std::string>& texts)> set;
};

template <class Value>
struct NameOf {
  std::string_view name;
  Value value;
};
template <class Value, size_t count>
std::string_view name_of(const Value& value, const NameOf<Value> (&names)[count]) {
  for (const NameOf<Value>& each : names) {
    if (each.value == value) return each.name;
  }
  return {};
}
// A value that is one of the table's, by its name.
template <class Value, size_t count>
TextOf one_of(Value* value, const NameOf<Value> (&names)[count]);

using KeyTarget = std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*, std::vector<int64_t>*,
                               uint64_t*, TextOf, std::shared_ptr<const TextsOf>>;

// Throws kInvalidArgument for a value that the key may not have. The message begins with `name`, which says where the
// key is from: "configuration: model.layers", "optimizer: beta1".
using KeyCheck = void (*)(const std::string& name, const KeyTarget& target);

// What becomes of a run that goes on from a checkpoint of another value.
enum class OnResume {
  kBySection,  // [model]: it is refused; [data] and [train]: it is told; [parallel]: it goes on
  kRefused,
  kTold,
  kFree,
};

// One row says all there is to say of a setting. Reading and writing a job's file, flags, help, and the checks of
// values, of effects and of resumed runs walk the rows; the struct that has the value has the row beside it.
struct Key {
  std::string_view name;  // without its section: "layers" of "model.layers"
  KeyTarget target;       // holds the default until the key is read
  std::string_view doc;
  KeyCheck check = nullptr;  // null: any value
  // Another name of the key on the command line of `trireme train` and `explain`, "--tp"; true or false: "--no-tp" too.
  std::string_view flag = {};
  bool in_bench = false;  // `trireme bench step` has the flag as well
  bool of_run = false;    // it changes no step: `trireme explain` takes the flag and does not list it
  // A value of another key of the section beside which this one changes nothing: "tp = 1".
  std::string_view no_effect_with = {};
  bool of_ranks = false;  // of what several ranks do with each other: on one it changes nothing
  OnResume on_resume = OnResume::kBySection;
  bool is_meaning = false;  // of what a model makes, as the names of its classes: no reader of a checkpoint has another
  // What the flag sets besides where it is given another value than the default: "mode=semi_auto_parallel".
  std::string_view implies = {};
  // Of gradients, updates, starting values or what is kept for the backward pass: refused where nothing is trained.
  bool of_training = false;
};

// A key that changes nothing beside the values of others, and beside which: {"top_k", "model.experts = 0"}.
struct KeyWithoutEffect {
  std::string_view name;
  std::string reason;
};

// What a size of a tensor can be: tokens, labels and positions are numbered in 32 bits.
inline constexpr int64_t kMostOfASize = (int64_t{1} << 31) - 1;

void check_range(const std::string& name, const KeyTarget& target, int64_t low, int64_t high);
// Throw kInvalidArgument, "NAME = 0; it must be 1 or more". Of a list each number is looked at.
void check_size(const std::string& name, const KeyTarget& target);          // a size of a tensor, 1 or more
void check_size_or_0(const std::string& name, const KeyTarget& target);     // the same, or 0
void check_count(const std::string& name, const KeyTarget& target);         // 1 or more
void check_share(const std::string& name, const KeyTarget& target);         // from 0 to below 1, also in f32
void check_not_negative(const std::string& name, const KeyTarget& target);  // 0 or more, within what f32 holds
void check_finite(const std::string& name, const KeyTarget& target);        // a number that f32 holds
void check_not_below_0(const std::string& name, const KeyTarget& target);   // a whole number, 0 or more
// A whole number of a range: "NAME = 5000; it must be from 1 to 4096".
template <int64_t low, int64_t high>
void check_from_to(const std::string& name, const KeyTarget& target) {
  check_range(name, target, low, high);
}

// "configuration: model.kind = 'gtp'; it must be one of 'gpt' or 'mlp'. Did you mean 'gpt'?"
[[noreturn]] void fail_not_one_of(const std::string& name, const std::string& value,
                                  const std::vector<std::string>& candidates);

// What is thrown for a value says of which key it is: "configuration: parallel.mesh: 'dp' is not a mesh".
void with_name(const std::string& name, const std::function<void()>& set);

template <class Value, size_t count>
TextOf one_of(Value* value, const NameOf<Value> (&names)[count]) {
  const auto* const table = &names;
  return {.text = [value, table] { return std::string(name_of(*value, *table)); },
          .set =
              [value, table](const std::string& name, const std::string& text) {
                std::vector<std::string> candidates;
                for (const NameOf<Value>& each : *table) {
                  if (each.name == text) {
                    *value = each.value;
                    return;
                  }
                  candidates.emplace_back(each.name);
                }
                fail_not_one_of(name, text, candidates);
              }};
}

// A value that is made of its text and printed by to_string; what it does not take is refused by what it says.
template <class Value>
TextOf as_text(Value* value) {
  return {.text = [value] { return to_string(*value); },
          .set = [value](const std::string& name,
                         const std::string& text) { with_name(name, [&] { *value = Value(text); }); }};
}
// A list of such values, whose texts `read` and `print` take.
template <class Value>
std::shared_ptr<const TextsOf> as_texts(std::vector<Value>* values, Value (*read)(const std::string& text),
                                        std::string (*print)(const Value& value)) {
  TextsOf out;
  out.texts = [values, print] {
    std::vector<std::string> texts;
    for (const Value& value : *values) texts.push_back(print(value));
    return texts;
  };
  out.set = [values, read](const std::string& name, const std::vector<std::string>& texts) {
    std::vector<Value> made;
    for (const std::string& text : texts) with_name(name, [&] { made.push_back(read(text)); });
    *values = std::move(made);
  };
  return std::make_shared<const TextsOf>(std::move(out));
}

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

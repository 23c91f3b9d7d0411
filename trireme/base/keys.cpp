#include "trireme/base/keys.h"

#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr double kMostInF32 = std::numeric_limits<float>::max();

template <class T, class Fn>
void each_number(const std::string& name, const KeyTarget& target, Fn&& fn) {
  if (auto* const* one = std::get_if<T*>(&target)) return fn(**one);
  if constexpr (std::is_same_v<T, int64_t>) {
    if (auto* const* list = std::get_if<std::vector<int64_t>*>(&target)) {
      for (const int64_t value : **list) fn(value);
      return;
    }
  }
  invariant(false, "key '{}' is checked as a number and is none", name);
}

void check_whole(const std::string& name, const KeyTarget& target, int64_t low, int64_t most) {
  each_number<int64_t>(name, target, [&](int64_t value) {
    require(value >= low, "{} = {}; it must be {} or more", name, value, low);
    require(value <= most, "{} = {}; it must be at most {}", name, value, most);
  });
}

}  // namespace

void check_size(const std::string& name, const KeyTarget& target) {
  check_whole(name, target, 1, kMostOfASize);
}

void check_size_or_0(const std::string& name, const KeyTarget& target) {
  check_whole(name, target, 0, kMostOfASize);
}

void check_count(const std::string& name, const KeyTarget& target) {
  check_whole(name, target, 1, std::numeric_limits<int64_t>::max());
}

void check_not_below_0(const std::string& name, const KeyTarget& target) {
  check_whole(name, target, 0, std::numeric_limits<int64_t>::max());
}

void check_range(const std::string& name, const KeyTarget& target, int64_t low, int64_t high) {
  each_number<int64_t>(name, target, [&](int64_t value) {
    require(value >= low && value <= high, "{} = {}; it must be from {} to {}", name, value, low, high);
  });
}

void check_share(const std::string& name, const KeyTarget& target) {
  each_number<double>(name, target, [&](double value) {
    require(value >= 0 && static_cast<float>(value) < 1, "{} = {}; it must be from 0 to below 1{}", name, value,
            value < 1 ? ", also in f32" : "");
  });
}

void check_not_negative(const std::string& name, const KeyTarget& target) {
  each_number<double>(name, target, [&](double value) {
    require(value >= 0, "{} = {}; it must be 0 or more", name, value);
    require(value <= kMostInF32, "{} = {}; it must be a number that f32 holds", name, value);
  });
}

void check_finite(const std::string& name, const KeyTarget& target) {
  each_number<double>(name, target, [&](double value) {
    require(value >= -kMostInF32 && value <= kMostInF32, "{} = {}; it must be a number that f32 holds", name, value);
  });
}

void with_name(const std::string& name, const std::function<void()>& set) {
  try {
    set();
  } catch (const Error& e) {
    fail(ErrorKind::kInvalidArgument, "configuration: {}: {}", name, e.text());
  }
}

void fail_not_one_of(const std::string& name, const std::string& value, const std::vector<std::string>& candidates) {
  const std::string near = closest(value, candidates);
  fail(ErrorKind::kInvalidArgument, "configuration: {} = '{}'; it must be one of {}.{}", name, value,
       quoted_list(candidates), near.empty() ? "" : fmt::format(" Did you mean '{}'?", near));
}

}  // namespace trireme

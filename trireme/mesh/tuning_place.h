// Where a job keeps which kernels are the quickest on its machine (tuning.h), as its setting `tuning` says.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/words.h"

namespace trireme {

// A file that is named; "auto", the usual one; or "off", none: the usual kernels are taken.
class TuningPlace {
 public:
  template <Text T>
  TuningPlace(const T& written) : TuningPlace(read(written)) {}  // NOLINT: throws kInvalidArgument for ""

  bool is_off() const { return kind_ == Kind::kOff; }
  bool is_named() const { return kind_ == Kind::kNamed; }
  std::string file(std::string_view machine) const;  // "" where it is off, and where the usual one has no folder
  friend std::string to_string(const TuningPlace& place);

 private:
  enum class Kind { kOff, kUsual, kNamed };
  TuningPlace() = default;
  static TuningPlace read(std::string_view text);

  Kind kind_ = Kind::kOff;
  std::string path_;
};
}  // namespace trireme

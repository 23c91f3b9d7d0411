#include "trireme/mesh/tuning_place.h"

#include "trireme/base/error.h"
#include "trireme/mesh/tuning.h"

namespace trireme {
namespace {

constexpr std::string_view kAutoPlace = "auto", kOffPlace = "off";

}  // namespace

TuningPlace TuningPlace::read(std::string_view text) {
  require(!text.empty(), "the place of a tuning is empty; it must be auto, off or a file");
  TuningPlace out;
  if (text == kOffPlace) return out;
  out.kind_ = text == kAutoPlace ? Kind::kUsual : Kind::kNamed;
  if (out.is_named()) out.path_ = text;
  return out;
}

std::string TuningPlace::file(std::string_view machine) const {
  return kind_ == Kind::kUsual ? usual_tuning_file(machine) : path_;
}

std::string to_string(const TuningPlace& place) {
  return place.is_off() ? std::string(kOffPlace) : place.is_named() ? place.path_ : std::string(kAutoPlace);
}

}  // namespace trireme

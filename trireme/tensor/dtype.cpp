#include "trireme/tensor/dtype.h"

#include <array>
#include <utility>

namespace trireme {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 9> kTypes{
    {{"f32", 4}, {"f64", 8}, {"f16", 2}, {"bf16", 2}, {"i8", 1}, {"u8", 1}, {"i32", 4}, {"i64", 8}, {"bool", 1}}};

}  // namespace

int64_t size_of(DType dtype) {
  return kTypes.at(static_cast<size_t>(dtype)).second;
}

std::string_view to_string(DType dtype) {
  return kTypes.at(static_cast<size_t>(dtype)).first;
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].first == text) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace trireme

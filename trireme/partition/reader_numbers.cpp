#include "trireme/partition/reader_numbers.h"

#include <algorithm>

namespace trireme {
namespace {

bool is_same_reader(const ValueReader& a, const ValueReader& b) {
  return a.phase == b.phase && a.stage == b.stage &&
         std::ranges::equal(a.windows, b.windows, [](const WindowAttrs& one, const WindowAttrs& other) {
           return Attrs::of(one) == Attrs::of(other);
         });
}

}  // namespace

int LayoutNumbers::of(const Layout& layout) {
  const auto [known, is_new] = numbers_.try_emplace(layout, static_cast<int>(all_.size()));
  if (is_new) all_.push_back(layout);
  return known->second;
}

int ReaderNumbers::of(const ValueReader& reader) {
  std::vector<int>& alike = numbers_[reader.layout];
  for (const int number : alike) {
    if (is_same_reader((*this)[number], reader)) return number;
  }
  alike.push_back(static_cast<int>(all_.size()));
  all_.push_back(reader);
  return alike.back();
}

}  // namespace trireme

// A mesh, and in the second line a layout on it.
#include "trireme/layout/layout.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [axes, cut] = fuzz::split(fuzz::text_of(data, size), "\n");
  Mesh mesh;
  fuzz::round_trip(
      axes, [&](std::string_view text) { return mesh = parse_mesh(text); },
      [](const Mesh& of) { return to_string(of); });
  fuzz::round_trip(
      cut, [&](std::string_view text) { return parse_layout(text, mesh); },
      [&](const Layout& layout) { return to_string(layout, mesh); });
  fuzz::accepts([&] { check(parse_layout(cut, mesh), Shape{4, 6, 8}, mesh, "a tensor"); });
  return 0;
}

#include "trireme/layout/named_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/words.h"

namespace trireme {
namespace {

constexpr std::array kReductionKinds = {Reduction::kSum, Reduction::kMax, Reduction::kMin};

// Reads "partial(sum: mp*tp) ...".
std::vector<NamedLayout::Partial> read_partial(std::string_view text, std::string_view all) {
  std::vector<NamedLayout::Partial> out;
  while (!(text = trim(text)).empty()) {
    const size_t open = text.find('(');
    const size_t colon = text.find(':');
    const size_t close = text.find(')');
    require(trim(text.substr(0, open)) == "partial" && colon != text.npos && close != text.npos && open < colon &&
                colon < close,
            "'{}' is not a layout: expected 'partial(sum: axis)' after ']', found '{}'", all, text);
    const std::string_view name = trim(text.substr(open + 1, colon - open - 1));
    const auto* reduction = std::ranges::find_if(kReductionKinds, [&](Reduction r) { return to_string(r) == name; });
    require(reduction != kReductionKinds.end(), "'{}' is not a layout: no reduction named '{}'.{}", all, name,
            suggestion(name, {"sum", "max", "min"}));
    out.push_back({*reduction, parse_axis_names(text.substr(colon + 1, close - colon - 1))});
    text.remove_prefix(close + 1);
  }
  return out;
}

std::string partial_text(const NamedLayout& layout) {
  std::string out;
  for (const NamedLayout::Partial& each : layout.partial)
    out += fmt::format(" partial({}: {})", to_string(each.reduction), to_string(each.axes));
  return out;
}

}  // namespace

NamedLayout NamedLayout::read(std::string_view text) {
  const std::string_view all = trim(text);
  const size_t close = all.find(']');
  require(!all.empty() && all.front() == '[' && close != all.npos,
          "'{}' is not a layout; expected something like [dp, tp*sp, -] partial(sum: mp)", text);
  NamedLayout out;
  std::string_view inside = trim(all.substr(1, close - 1));
  while (!inside.empty()) {
    const size_t comma = inside.find(',');
    out.dims.push_back(parse_axis_names(trim(inside.substr(0, comma))));
    require(comma == inside.npos || !trim(inside.substr(comma + 1)).empty(),
            "'{}' is not a layout: nothing after the last ','; write '-' for a whole dimension", text);
    inside = comma == inside.npos ? "" : inside.substr(comma + 1);
  }
  out.partial = read_partial(all.substr(close + 1), all);
  return out;
}

NamedLayout::NamedLayout(const Layout& layout, const Mesh& mesh) {
  for (const Axes& axes : layout.dims) dims.push_back(names_of(axes, mesh));
  for (const Reduction reduction : kReductionKinds) {
    Axes axes;
    for (const PartialAxis& p : layout.partial) {
      if (p.reduction == reduction) axes.push_back(p.axis);
    }
    if (!axes.empty()) partial.push_back({reduction, names_of(axes, mesh)});
  }
}

Layout NamedLayout::on(const Mesh& mesh) const {
  Layout out;
  for (const AxisNames& axes : dims) out.dims.push_back(axes_of(axes, mesh));
  for (const Partial& each : partial) {
    for (const int axis : axes_of(each.axes, mesh)) out.add_partial(axis, each.reduction);
  }
  return out;
}

std::string to_string(const NamedLayout& layout) {
  std::vector<std::string> dims;
  for (const AxisNames& axes : layout.dims) dims.push_back(to_string(axes));
  return fmt::format("[{}]{}", joined_text(dims, ", "), partial_text(layout));
}

std::string to_string(const std::vector<NamedLayout>& layouts) {
  std::vector<std::string> out;
  for (const NamedLayout& layout : layouts) out.push_back(to_string(layout));
  return joined_text(out, ", ");
}

std::string to_string(const Layout& layout, const Mesh& mesh) {
  std::string out = "[";
  for (const Axes& axes : layout.dims) {
    if (out.size() > 1) out += ", ";
    out += axes.empty() ? "-" : print_axes(axes, mesh);
  }
  out += ']';
  return layout.partial.empty() ? out : out + partial_text(NamedLayout(layout, mesh));
}

Layout parse_layout(std::string_view text, const Mesh& mesh, int rank) {
  Layout out = NamedLayout(text).on(mesh);
  require(rank < 0 || out.rank() == rank,
          "layout '{}' has {} dimensions where {} are expected; give one entry per dimension, '-' where it is whole",
          text, out.rank(), rank);
  return out;
}

}  // namespace trireme

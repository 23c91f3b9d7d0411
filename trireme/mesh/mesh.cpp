#include "trireme/mesh/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/said.h"
#include "trireme/base/words.h"

namespace trireme {
namespace {

bool is_word(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto inner = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), inner);
}

std::vector<int64_t> prime_factors(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t p = 2; p * p <= n; p += p == 2 ? 1 : 2) {
    for (; n % p == 0; n /= p) out.push_back(p);
  }
  if (n > 1) out.push_back(n);
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t at = text.find(separator);
    out.push_back(trim(text.substr(0, at)));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> user_axes) : user_axes_(std::move(user_axes)) {
  int64_t devices = 1;
  for (size_t i = 0; i < user_axes_.size(); ++i) {
    const MeshAxis& user = user_axes_[i];
    require(is_word(user.name), "mesh: '{}' is not an axis name; use letters, digits and '_', a letter first",
            user.name);
    require(user.name != "None" && user.name != "partial", "mesh: the axis name '{}' is reserved; choose another",
            user.name);
    require(user.size >= 1, "mesh: axis '{}' has size {}; sizes must be 1 or more", user.name, user.size);
    for (size_t j = 0; j < i; ++j) {
      require(user_axes_[j].name != user.name, "mesh: axis '{}' is named twice; every axis needs a name of its own",
              user.name);
    }
    require(devices <= kMostDevices / user.size, "mesh: '{}' has more than 2^40 devices", said(*this));
    devices *= user.size;  // checked first: the factors of a number without a bound may take minutes
    const std::vector<int64_t> factors = prime_factors(user.size);
    for (size_t k = 0; k < factors.size(); ++k) {
      axes_.push_back({factors.size() == 1 ? user.name : fmt::format("{}.{}", user.name, k), factors[k]});
      user_of_.push_back(static_cast<int>(i));
    }
  }
  for (size_t i = 0; i + 1 < user_axes_.size(); ++i) {
    const std::string& next = user_axes_[i + 1].name;
    require(user_axes_[i].name != kSeqChunkAxis && (user_axes_[i].name != kMicroBatchAxis || next == kSeqChunkAxis),
            "mesh: the axis '{}', which takes no ranks, must be the last", user_axes_[i].name);
  }
  strides_.resize(axes_.size());
  for (size_t axis = axes_.size(); axis-- > 0;) {
    strides_[axis] = devices_;
    devices_ *= axes_[axis].size;
  }
}

const MeshAxis& Mesh::axis(int axis) const {
  const bool known = axis >= 0 && axis < axes();
  if (!known) invariant(false, "mesh '{}' has {} prime axes, asked for number {}", said(*this), axes(), axis);
  return axes_[static_cast<size_t>(axis)];
}

int Mesh::user_axis_of(int axis) const {
  static_cast<void>(this->axis(axis));
  return user_of_[static_cast<size_t>(axis)];
}

int64_t Mesh::stride(int axis) const {
  static_cast<void>(this->axis(axis));
  return strides_[static_cast<size_t>(axis)];
}

Axes Mesh::find(std::string_view name) const {
  Axes out;
  for (size_t i = 0; i < user_axes_.size(); ++i) {
    if (user_axes_[i].name != name) continue;
    for (int axis = 0; axis < axes(); ++axis) {
      if (user_axis_of(axis) == static_cast<int>(i)) out.push_back(axis);
    }
    return out;
  }
  for (int axis = 0; axis < axes(); ++axis) {
    if (axes_[static_cast<size_t>(axis)].name == name) return {axis};
  }
  std::vector<std::string> names;
  for (const MeshAxis& user : user_axes_) names.push_back(user.name);
  fail(ErrorKind::kNotFound, "no mesh axis named '{}' in mesh '{}'.{}", name, to_string(*this),
       suggestion(name, names));
}

std::vector<int64_t> Mesh::coordinates(int64_t rank) const {
  invariant(rank >= 0 && rank < devices_, "rank {} of a mesh of {} devices", rank, devices_);
  std::vector<int64_t> out(axes_.size());
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    out[axis] = rank / strides_[axis] % axes_[axis].size;
  }
  return out;
}

int64_t Mesh::rank_of(std::span<const int64_t> coordinates) const {
  invariant(coordinates.size() == axes_.size(), "{} coordinates for a mesh of {} prime axes", coordinates.size(),
            axes_.size());
  int64_t rank = 0;
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    invariant(coordinates[axis] >= 0 && coordinates[axis] < axes_[axis].size, "coordinate {} on axis '{}' of size {}",
              coordinates[axis], axes_[axis].name, axes_[axis].size);
    rank += coordinates[axis] * strides_[axis];
  }
  return rank;
}

int64_t Mesh::index_along(int64_t rank, std::span<const int> axes) const {
  invariant(rank >= 0 && rank < devices_, "rank {} of a mesh of {} devices", rank, devices_);
  int64_t index = 0;
  for (int a : axes) index = index * axis(a).size + rank / stride(a) % axis(a).size;
  return index;
}

int64_t Mesh::size_of(std::span<const int> axes) const {
  int64_t size = 1;
  for (int a : axes) size *= axis(a).size;
  return size;
}

std::vector<int64_t> Mesh::group_of(int64_t rank, std::span<const int> axes) const {
  invariant(rank >= 0 && rank < devices_, "rank {} of a mesh of {} devices", rank, devices_);
  int64_t base = rank;
  for (int a : axes) base -= rank / stride(a) % axis(a).size * stride(a);
  std::vector<int64_t> out{base};
  for (int a : axes) {
    std::vector<int64_t> next;
    next.reserve(out.size() * static_cast<size_t>(axis(a).size));
    for (int64_t member : out) {
      for (int64_t i = 0; i < axis(a).size; ++i) next.push_back(member + i * stride(a));
    }
    out = std::move(next);
  }
  return out;
}

std::vector<std::vector<int64_t>> Mesh::groups(std::span<const int> axes) const {
  std::vector<std::vector<int64_t>> out;
  for (int64_t rank = 0; rank < devices_; ++rank) {
    if (index_along(rank, axes) == 0) out.push_back(group_of(rank, axes));
  }
  return out;
}

namespace {

bool takes_no_ranks(const MeshAxis& axis) {
  return axis.name == kMicroBatchAxis || axis.name == kSeqChunkAxis;
}

template <class Predicate>
Axes axes_that(const Mesh& mesh, Predicate&& predicate) {
  Axes out;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (predicate(mesh, axis)) out.push_back(axis);
  }
  return out;
}

}  // namespace

int64_t seq_chunks(const Mesh& mesh) {
  const bool has = !mesh.user_axes().empty() && mesh.user_axes().back().name == kSeqChunkAxis;
  return has ? mesh.user_axes().back().size : 1;
}

int64_t micro_batches(const Mesh& mesh) {
  int64_t out = 1;
  for (const MeshAxis& axis : mesh.user_axes()) out *= takes_no_ranks(axis) ? axis.size : 1;
  return out;
}

Mesh with_micro_batches(const Mesh& ranks, int64_t count, int64_t chunks) {
  std::vector<MeshAxis> axes = ranks.user_axes();
  if (count > chunks) axes.push_back({std::string(kMicroBatchAxis), count / chunks});
  if (chunks > 1) axes.push_back({std::string(kSeqChunkAxis), chunks});
  return Mesh(std::move(axes));
}

Mesh without_micro_batches(const Mesh& mesh) {
  std::vector<MeshAxis> axes = mesh.user_axes();
  std::erase_if(axes, takes_no_ranks);
  return Mesh(std::move(axes));
}

Axes micro_batch_axes(const Mesh& mesh) {
  return axes_that(mesh, is_micro_batch_axis);
}

Axes seq_chunk_axes(const Mesh& mesh) {
  return axes_that(mesh, is_seq_chunk_axis);
}

bool is_micro_batch_axis(const Mesh& mesh, int axis) {
  return takes_no_ranks(mesh.user_axes()[static_cast<size_t>(mesh.user_axis_of(axis))]);
}

bool is_seq_chunk_axis(const Mesh& mesh, int axis) {
  return mesh.user_axes()[static_cast<size_t>(mesh.user_axis_of(axis))].name == kSeqChunkAxis;
}

std::string to_string(const Mesh& mesh) {
  std::string out;
  for (const MeshAxis& axis : mesh.user_axes()) {
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", axis.name, axis.size);
  }
  return out;
}

Mesh parse_mesh(std::string_view text) {
  if (trim(text).empty()) return Mesh();
  std::vector<MeshAxis> axes;
  for (std::string_view part : split(text, ',')) {
    const size_t equals = part.find('=');
    require(equals != std::string_view::npos, "'{}' is not a mesh: '{}' has no size; expected something like dp=4,tp=2",
            text, part);
    const std::string_view digits = trim(part.substr(equals + 1));
    int64_t size = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    require(status == std::errc() && end == digits.data() + digits.size(),
            "'{}' is not a mesh: '{}' is not a size; expected something like dp=4,tp=2", text, digits);
    axes.push_back({std::string(trim(part.substr(0, equals))), size});
  }
  return Mesh(std::move(axes));
}

AxisNames names_of(std::span<const int> axes, const Mesh& mesh) {
  AxisNames out;
  for (size_t i = 0; i < axes.size();) {
    const MeshAxis& user = mesh.user_axes()[static_cast<size_t>(mesh.user_axis_of(axes[i]))];
    const Axes all = mesh.find(user.name);
    const bool whole =
        i + all.size() <= axes.size() && std::equal(all.begin(), all.end(), axes.begin() + static_cast<int64_t>(i));
    out.push_back(whole ? user.name : mesh.axis(axes[i]).name);
    i += whole ? all.size() : 1;
  }
  return out;
}

Axes axes_of(const AxisNames& names, const Mesh& mesh) {
  Axes out;
  for (const std::string& name : names) {
    const Axes axes = mesh.find(name);
    out.append(axes.begin(), axes.end());
  }
  return out;
}

std::string to_string(const AxisNames& names) {
  return names.empty() ? "-" : joined_text(names, "*");
}

AxisNames parse_axis_names(std::string_view text) {
  AxisNames out;
  if (trim(text) == "-") return out;
  for (const std::string_view name : split(text, '*')) out.emplace_back(name);
  return out;
}

std::string print_axes(std::span<const int> axes, const Mesh& mesh) {
  return to_string(names_of(axes, mesh));
}

Axes parse_axes(std::string_view text, const Mesh& mesh) {
  return axes_of(parse_axis_names(text), mesh);
}

std::vector<Axes> axes_for_cuts(std::span<const int64_t> cuts, const Mesh& mesh) {
  std::vector<Axes> out(cuts.size());
  std::vector<bool> used(static_cast<size_t>(mesh.axes()), false);
  int64_t product = 1;
  for (int64_t cut : cuts) {
    require(cut >= 1, "cuts ({}): a cut of {}; cuts must be 1 or more", said_by([&] { return joined_text(cuts, ","); }),
            cut);
    product = product > std::numeric_limits<int64_t>::max() / cut ? std::numeric_limits<int64_t>::max() : product * cut;
  }
  require(product <= mesh.devices(),
          "cuts ({}) need {} devices, but mesh '{}' has {}; make the product of the cuts divide {}",
          said_by([&] { return joined_text(cuts, ","); }), product, said(mesh), mesh.devices(), mesh.devices());
  for (size_t i = cuts.size(); i-- > 0;) {
    int64_t rest = cuts[i];
    for (int axis = mesh.axes() - 1; axis >= 0 && rest > 1; --axis) {
      const auto a = static_cast<size_t>(axis);
      if (used[a] || rest % mesh.axis(axis).size != 0) continue;
      used[a] = true;
      rest /= mesh.axis(axis).size;
      out[i].insert(out[i].begin(), axis);
    }
    require(rest == 1,
            "cuts ({}): mesh '{}' of {} devices has no axes left for a cut of {}; make the product "
            "of the cuts divide {}",
            said_by([&] { return joined_text(cuts, ","); }), said(mesh), mesh.devices(), cuts[i], mesh.devices());
  }
  return out;
}

}  // namespace trireme

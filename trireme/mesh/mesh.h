// Mesh: the ranks of a job, or of one crew of a pipeline, as a grid with named axes. A user's axis is kept as its prime
// factors, so that cuts of 4x2 and of 2x4 of the same eight devices are both exact. The last axis
// varies fastest with the rank. A user's axis of size 1 has no prime axes: cutting by it is no cut.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/few.h"

namespace trireme {

inline constexpr int64_t kMostDevices = int64_t{1} << 40;  // of a mesh, and of a machine

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

// Prime axes of a mesh, most significant first. Few cut one dimension, or are in one group.
using Axes = Few<int, 4>;

class Mesh {
 public:
  Mesh() = default;  // one device, no axes
  // Factors each axis into primes, smallest first. Throws kInvalidArgument on a size below 1, a
  // name that is not a word, a reserved name or a name used twice.
  explicit Mesh(std::vector<MeshAxis> user_axes);

  int64_t devices() const { return devices_; }
  int axes() const { return static_cast<int>(axes_.size()); }
  // A prime axis: named "dp", or "dp.0", "dp.1" when the user's axis has several factors.
  const MeshAxis& axis(int axis) const;
  const std::vector<MeshAxis>& user_axes() const { return user_axes_; }
  // The index in user_axes() of the axis that `axis` is a factor of.
  int user_axis_of(int axis) const;
  // Ranks between neighbours along the axis.
  int64_t stride(int axis) const;

  // The prime axes of a user's axis ("dp"), most significant first, or one of them ("dp.1"). Throws
  // kNotFound, naming the likely one.
  Axes find(std::string_view name) const;

  // One coordinate per prime axis.
  std::vector<int64_t> coordinates(int64_t rank) const;
  int64_t rank_of(std::span<const int64_t> coordinates) const;
  // The rank's place along several axes read as one, the first listed most significant.
  int64_t index_along(int64_t rank, std::span<const int> axes) const;
  // Product of the axes' sizes.
  int64_t size_of(std::span<const int> axes) const;
  // The ranks that agree with `rank` in all other coordinates, in the order of index_along.
  std::vector<int64_t> group_of(int64_t rank, std::span<const int> axes) const;
  // Every such group once, ordered by smallest member.
  std::vector<std::vector<int64_t>> groups(std::span<const int> axes) const;

  friend bool operator==(const Mesh& a, const Mesh& b) { return a.user_axes_ == b.user_axes_; }

 private:
  std::vector<MeshAxis> user_axes_;
  std::vector<MeshAxis> axes_;
  std::vector<int> user_of_;
  std::vector<int64_t> strides_;
  int64_t devices_ = 1;
};

// The reserved axis "micro_batch" takes no ranks: what differs along it is done by one rank, part after part. So does
// "seq_chunk" after it: chunks of the positions of each micro-batch. They are the last axes, so others have the same
// numbers with and without them.
inline constexpr std::string_view kMicroBatchAxis = "micro_batch";
inline constexpr std::string_view kSeqChunkAxis = "seq_chunk";
int64_t seq_chunks(const Mesh& mesh);     // the axis' size; 1 without it
int64_t micro_batches(const Mesh& mesh);  // parts of the batch: the product of both axes' sizes
// The same mesh for a count of 1. `chunks` divides the count.
Mesh with_micro_batches(const Mesh& ranks, int64_t count, int64_t chunks = 1);
Mesh without_micro_batches(const Mesh& mesh);
Axes micro_batch_axes(const Mesh& mesh);  // of both
Axes seq_chunk_axes(const Mesh& mesh);
bool is_micro_batch_axis(const Mesh& mesh, int axis);  // of both
bool is_seq_chunk_axis(const Mesh& mesh, int axis);

std::string to_string(const Mesh& mesh);  // "dp=4,tp=2"; one device is ""
Mesh parse_mesh(std::string_view text);   // reads it back identical

// Names of axes ("dp"), or of one of their factors ("dp.1"), most significant first.
using AxisNames = std::vector<std::string>;
AxisNames names_of(std::span<const int> axes, const Mesh& mesh);  // all factors of an axis, in order, are its name
Axes axes_of(const AxisNames& names, const Mesh& mesh);           // throws kNotFound as Mesh::find does
std::string to_string(const AxisNames& names);                    // "dp*tp.1"; "-" for none
AxisNames parse_axis_names(std::string_view text);

std::string print_axes(std::span<const int> axes, const Mesh& mesh);
Axes parse_axes(std::string_view text, const Mesh& mesh);

// Axes for a list of cut counts, as in the strategy (2,4): for each count the axes that cut it,
// most significant first. The least significant axes go to the last count, and axes left over, over
// which the pieces are replicated, are the most significant ones. Throws kInvalidArgument when the
// mesh has no such axes (a product above the devices, or a prime the mesh does not have).
std::vector<Axes> axes_for_cuts(std::span<const int64_t> cuts, const Mesh& mesh);

}  // namespace trireme

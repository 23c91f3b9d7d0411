#include "trireme/train/checkpointing.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme {

std::vector<std::string> gather_texts(comm::World& world, const std::string& mine) {
  const auto ranks = static_cast<size_t>(world.size());
  int64_t length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(ranks);
  world.all()
      .all_gather({reinterpret_cast<std::byte*>(&length), {DType::kI64, {1}}},
                  {reinterpret_cast<std::byte*>(lengths.data()), {DType::kI64, {world.size()}}})
      .wait();
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded = mine;
  padded.resize(static_cast<size_t>(longest));
  std::string all(static_cast<size_t>(longest) * ranks, '\0');
  world.all()
      .all_gather({reinterpret_cast<std::byte*>(padded.data()), {DType::kU8, {longest}}},
                  {reinterpret_cast<std::byte*>(all.data()), {DType::kU8, {longest * world.size()}}})
      .wait();
  std::vector<std::string> out;
  for (size_t rank = 0; rank < ranks; ++rank) {
    out.push_back(all.substr(rank * static_cast<size_t>(longest), static_cast<size_t>(lengths[rank])));
  }
  return out;
}

namespace {

// A box of a tensor as boxes of the same tensor with neighbouring dimensions written as one ([k, p, n] as [k, p n]).
// `inner` is the part of the box, in the tensor's own dimensions, that each is.
struct SavedBox {
  Box inner;
  Box saved;
};

// The saved dimension of each of the tensor's.
std::vector<int> saved_dims(const Shape& whole, const Shape& saved) {
  std::vector<int> out;
  int dim = 0;
  int64_t size = 1;
  for (int d = 0; d < whole.rank(); ++d) {
    out.push_back(dim);
    size *= whole[d];
    if (dim < saved.rank() && size == saved[dim]) {
      ++dim;
      size = 1;
    }
  }
  invariant(dim == saved.rank() && size == 1, "a tensor of {} cannot be saved as {}", to_string(whole), to_string(saved));
  return out;
}

std::vector<SavedBox> saved_boxes(const Shape& whole, const Box& box, const Shape& saved) {
  if (saved.rank() == 0) return {{box, box}};
  const std::vector<int> dims = saved_dims(whole, saved);
  std::vector<Box> parts{box};
  // Where a dimension inside a saved one is cut, the ones before it fall in single indices.
  for (int d = whole.rank(); d-- > 1;) {
    const bool cut = box.size[d] != whole[d];
    if (!cut || dims[static_cast<size_t>(d)] != dims[static_cast<size_t>(d) - 1]) continue;
    for (int before = d; before-- > 0 && dims[static_cast<size_t>(before)] == dims[static_cast<size_t>(d)];) {
      std::vector<Box> single;
      for (const Box& part : parts) {
        for (int64_t i = 0; i < part.size[before]; ++i) {
          single.push_back(part);
          single.back().start[before] = part.start[before] + i;
          single.back().size[before] = 1;
        }
      }
      parts = std::move(single);
    }
  }
  std::vector<SavedBox> out;
  for (const Box& part : parts) {
    Box flat{saved, saved};
    for (int s = 0; s < saved.rank(); ++s) flat.start[s] = 0, flat.size[s] = 1;
    for (int d = 0; d < whole.rank(); ++d) {
      const int s = dims[static_cast<size_t>(d)];
      flat.start[s] = flat.start[s] * whole[d] + part.start[d];
      flat.size[s] *= part.size[d];
    }
    out.push_back({part, flat});
  }
  return out;
}

const Shape& saved_as(const Session& session, const PlanInput& input) {
  return session.compiled().graph.input(input.name).saved_as;
}

}  // namespace

std::string save_session(Session& session, comm::World* world, const SaveRequest& request) {
  const int rank = world ? world->rank() : 0;
  const ExecutionPlan& plan = session.compiled().plan;
  std::vector<ckpt::Piece> pieces;
  std::deque<HostTensor> copies;
  for (const PlanInput& input : session.pieces_to_write(rank)) {
    const Shape& whole = plan.values[static_cast<size_t>(input.value)].whole;
    const Shape& saved = saved_as(session, input);
    const Box box = session.step().input_box(input.name);
    const View data = session.step().input(input.name);
    const std::vector<SavedBox> boxes = saved_boxes(whole, box, saved);
    for (const SavedBox& part : boxes) {
      View bytes = data;
      if (boxes.size() > 1) {
        copies.emplace_back(TensorType{data.type.dtype, part.inner.size});
        bytes = copies.back().view();
        copy_region(data, box, bytes, part.inner, part.inner);
      }
      bytes.type.shape = part.saved.size;
      pieces.push_back({.name = input.name,
                        .role = input.role == Role::kParameter ? "param" : "state",
                        .whole = saved.rank() == 0 ? whole : saved,
                        .box = part.saved,
                        .data = bytes});
    }
  }
  ckpt::Peers peers{.rank = rank, .world = world ? world->size() : 1};
  if (world) peers.all_gather = [world](const std::string& text) { return gather_texts(*world, text); };
  const ckpt::Saved saved = ckpt::save(request.root, pieces,
                                       {.step = request.step,
                                        .seed = request.seed,
                                        .mesh = to_string(plan.mesh),
                                        .data_position = request.data_position,
                                        .meta = request.meta,
                                        .keep_last = request.keep},
                                       peers);
  for (const std::string& note : saved.notes) TRIREME_LOG(kWarn, "ckpt", "{}", note);
  return saved.path;
}

void load_session(Session& session, const ckpt::Reader& reader) {
  for (const std::string& note : reader.notes()) TRIREME_LOG(kWarn, "ckpt", "{}", note);
  const ExecutionPlan& plan = session.compiled().plan;
  for (const PlanInput& input : session.persistent()) {
    const PlanValue& value = plan.values[static_cast<size_t>(input.value)];
    const Shape& saved = saved_as(session, input);
    reader.require_type(input.name, {value.type.dtype, saved.rank() == 0 ? value.whole : saved});
    const Box box = session.step().input_box(input.name);
    const View data = session.step().input(input.name);
    const std::vector<SavedBox> boxes = saved_boxes(value.whole, box, saved);
    for (const SavedBox& part : boxes) {
      if (boxes.size() == 1) {
        reader.read(input.name, part.saved, {data.data, {data.type.dtype, part.saved.size}});
        continue;
      }
      const HostTensor copy({data.type.dtype, part.inner.size});
      reader.read(input.name, part.saved, {copy.view().data, {data.type.dtype, part.saved.size}});
      copy_region(copy.view(), part.inner, data, box, part.inner);
    }
  }
}

}  // namespace trireme

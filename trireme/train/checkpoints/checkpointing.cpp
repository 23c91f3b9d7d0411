#include "trireme/train/checkpoints/checkpointing.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/tensor/convert.h"

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
  invariant(dim == saved.rank() && size == 1, "a tensor of {} cannot be saved as {}", to_string(whole),
            to_string(saved));
  return out;
}

std::vector<SavedBox> saved_boxes(const Shape& whole, const Box& box, const Shape& saved) {
  if (saved.rank() == 0) return {{box, box}};
  const std::vector<int> dims = saved_dims(whole, saved);
  std::vector<Box> parts{box};
  // Where a dimension inside a saved one is cut, the ones before it are divided into single indices.
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

// Pieces that a model's own code cut are saved as they are.
Shape saved_as(const Session& session, const PlanInput& input) {
  const Input& declared = session.compiled().graph.input(input.name);
  return session.plan().by_hand && !declared.piece.empty() ? Shape{} : declared.saved_as;
}

bool is_own(const Session& session, const PlanInput& input) {
  return session.plan().by_hand && session.compiled().graph.input(input.name).piece.is_own();
}

// The dimension along which what each rank had of its own joins to the whole: the one that is cut, where one is; -1:
// none.
int joining_dim(const PlanValue& value, const TensorType& saved, int64_t ranks) {
  if (saved.shape.rank() != value.whole->rank() || saved.shape[0] % ranks != 0) return -1;
  int found = -1;
  for (int dim = 0; dim < value.whole->rank(); ++dim) {
    if (!value.layout->is_replicated() && value.layout->dims[static_cast<size_t>(dim)].empty()) continue;
    Shape joined = saved.shape;
    joined[0] /= ranks;
    joined[dim] *= ranks;
    if (value.whole == joined) found = found < 0 ? dim : -2;
  }
  return std::max(found, -1);
}

// The values that each of the checkpoint's ranks had of its own, for a session that takes them as pieces of one tensor.
struct Wanted {
  const PlanValue& value;
  bool is_told;  // how the pieces lie
  Box box;
  View data;
};
void join_own(const ckpt::TensorSource& source, const std::string& name, const Wanted& wanted) {
  const auto& [value, is_told, box, data] = wanted;
  const TensorType& saved = source.type(name);
  const int64_t ranks = source.ranks_with_own(name);
  source.require_type(name, {data.type.dtype, saved.shape});
  const int dim = is_told ? joining_dim(value, saved, ranks) : -1;
  require(
      dim >= 0,
      "tensor '{}' is {} ranks' own values in {} ({} along dimension 0), which are not pieces of the {} "
      "that "
      "this job has along one dimension; go on with {} ranks and the same layerwise parameters, or say how the pieces "
      "join, as in parallel.layerwise = [\"{} = [dp, -]\"]",
      name, ranks, source.text(), to_string(saved), to_string(TensorType{value.type.dtype, value.whole}), ranks, name);
  Shape piece = saved.shape;
  piece[0] /= ranks;
  for (int64_t k = 0; k < ranks; ++k) {
    Box lies = Box::whole(piece);
    lies.start[dim] = k * piece[dim];
    const std::optional<Box> common = intersect(lies, box);
    if (!common) continue;
    Box stored = *common;
    stored.start[dim] -= lies.start[dim];
    stored.start[0] += k * piece[0];
    const HostTensor part(TensorType{saved.dtype, common->size});
    source.read(name, stored, part.view());
    copy_region(part.view(), *common, data, box, *common);
  }
}

// Fills a view of a tensor's box, of the same element type or, where that is allowed, from another one.
void read_as(const ckpt::TensorSource& source, const std::string& name, const Box& box, const View& to) {
  const DType stored = source.type(name).dtype;
  if (stored == to.type.dtype) return source.read(name, box, to);
  const HostTensor copy(TensorType{stored, to.type.shape});
  source.read(name, box, copy.view());
  convert(copy.view(), to);
}

// Fills this rank's piece of an input.
void load_piece(const Session& session, const ckpt::TensorSource& source, const PlanInput& input, const View& data,
                ckpt::TensorSource::Types types) {
  const PlanValue& value = session.plan().values[static_cast<size_t>(input.value)];
  const Box box = session.step().input_box(input.name);
  if (const int64_t ranks = source.ranks_with_own(input.name); ranks > 0) {
    const bool as_saved = is_own(session, input) && session.plan().mesh.devices() == ranks;
    if (!as_saved) {
      const Piece& piece = session.compiled().graph.input(input.name).piece;
      return join_own(source, input.name, {value, piece.layout() != nullptr, box, data});
    }
  }
  const Shape saved = saved_as(session, input);
  source.require_type(input.name, {value.type.dtype, saved.rank() == 0 ? *value.whole : saved}, types);
  const Box inside = held(box, value.whole);
  if (inside != box) std::ranges::fill(data.raw(), std::byte{0});
  for (const SavedBox& part : saved_boxes(value.whole, inside, saved)) {
    if (part.inner == box) {
      read_as(source, input.name, part.saved, data.with({data.type.dtype, part.saved.size}));
      continue;
    }
    const HostTensor copy({data.type.dtype, part.inner.size});
    read_as(source, input.name, part.saved, copy.view().with({data.type.dtype, part.saved.size}));
    copy_region(copy.view(), part.inner, data, box, part.inner);
  }
}

// Parameters that were frozen when the checkpoint was made have no state there; of others that are frozen now it is not
// read.
void compare_frozen(const Session& session, const ckpt::Reader& reader) {
  const Graph& graph = session.compiled().graph;
  const auto name_of = [&](ValueId input) {
    return graph.inputs()[static_cast<size_t>(graph.value(input).index)].name;
  };
  for (const Update& update : graph.updates()) {
    const std::string parameter = name_of(update.parameter);
    for (const ValueId state : update.states) {
      require(
          reader.has(name_of(state)) || !reader.has(parameter),
          "checkpoint '{}' has '{}', but not '{}', which the optimizer keeps of it: the parameter was frozen when the "
          "checkpoint was made; freeze it again (train.groups), or start a new run with its values by "
          "train.init_from",
          reader.path(), parameter, name_of(state));
    }
  }
  int64_t left = 0;
  for (const std::string& name : reader.names()) {
    if (!reader.is_state_of_parameter(name)) continue;
    const auto input = std::ranges::find(graph.inputs(), ckpt::owner_of_state(name), &Input::name);
    left += input != graph.inputs().end() && graph.update_of(input->value) == nullptr ? 1 : 0;
  }
  if (left > 0) {
    TRIREME_LOG(kWarn, "ckpt", "{} of the optimizer in '{}' is left out: the parameters are not trained any more",
                counted(left, "tensor"), reader.path());
  }
}

// A copy of a part of the box.
HostTensor part_of(const View& data, const Box& box, const Box& inner) {
  HostTensor out(TensorType{data.type.dtype, inner.size});
  copy_region(data, box, out.view(), inner, inner);
  return out;
}

}  // namespace

std::string save_session(Session& session, comm::World* world, const SaveRequest& request) {
  const int rank = world ? world->rank() : 0;
  const ExecutionPlan& plan = session.plan();
  std::vector<ckpt::Piece> pieces;
  std::deque<HostTensor> copies;
  for (const PlanInput& input : session.pieces_to_write(rank)) {
    const Shape& whole = plan.values[static_cast<size_t>(input.value)].whole;
    const Shape saved = saved_as(session, input);
    const Box box = session.step().input_box(input.name);
    const View data = session.step().input(input.name);
    const std::vector<SavedBox> boxes = saved_boxes(whole, held(box, whole), saved);
    for (const SavedBox& part : boxes) {
      ckpt::Piece& piece = pieces.emplace_back();
      piece = {.name = input.name,
               .role = input.role == Role::kParameter ? "param" : "state",
               .whole = saved.rank() == 0 ? whole : saved,
               .box = part.saved,
               .data = data};
      if (data.memory != Memory::kHost) {
        piece.data = {nullptr, data.type};
        piece.read = [&session, name = input.name, box, inner = part.inner]() -> ckpt::ReadBytes {
          HostPiece held = session.step().borrow_input(name);
          if (inner == box) return {held.view, std::move(held.copy)};
          HostTensor own = part_of(held.view, box, inner);
          return {own.view(), std::move(own)};
        };
      } else if (part.inner != box) {
        piece.data = copies.emplace_back(part_of(data, box, part.inner)).view();
      }
      piece.data.type.shape = part.saved.size;
    }
  }
  std::map<std::string, std::string> meta = request.meta;
  for (const PlanInput& input : session.persistent()) {
    if (!is_own(session, input)) continue;
    std::string& names = meta[ckpt::kOwnValuesKey];
    names += (names.empty() ? "" : ",") + input.name;
  }
  ckpt::Peers peers{.rank = rank, .world = world ? world->size() : 1};
  if (world) peers.all_gather = [world](const std::string& text) { return gather_texts(*world, text); };
  const ckpt::Saved saved = ckpt::save(request.root, pieces,
                                       {.step = request.step,
                                        .seed = request.seed,
                                        .mesh = to_string(plan.mesh),
                                        .data_position = request.data_position,
                                        .meta = meta,
                                        .keep_last = request.keep,
                                        .keep_steps = request.keep_steps},
                                       peers);
  for (const std::string& note : saved.notes) TRIREME_LOG(kWarn, "ckpt", "{}", note);
  return saved.path;
}

void load_session(Session& session, const ckpt::Reader& reader) {
  for (const std::string& note : reader.notes()) TRIREME_LOG(kWarn, "ckpt", "{}", note);
  if (!session.compiled().graph.updates().empty()) compare_frozen(session, reader);
  for (const PlanInput& input : session.persistent()) load_input(session, reader, input);
}

void load_input(Session& session, const ckpt::TensorSource& source, const PlanInput& input,
                ckpt::TensorSource::Types types) {
  session.step().fill_inputs({&input.name, 1},
                             [&](std::span<const View> data) { load_piece(session, source, input, data[0], types); });
}

}  // namespace trireme

#include "trireme/train/checkpointing.h"

#include <algorithm>
#include <cstring>

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

std::string save_session(Session& session, comm::World* world, const SaveRequest& request) {
  const int rank = world ? world->rank() : 0;
  const ExecutionPlan& plan = session.compiled().plan;
  std::vector<ckpt::Piece> pieces;
  for (const PlanInput& input : session.pieces_to_write(rank)) {
    pieces.push_back({.name = input.name,
                      .role = input.role == Role::kParameter ? "param" : "state",
                      .whole = plan.values[static_cast<size_t>(input.value)].whole,
                      .box = session.step().input_box(input.name),
                      .data = session.step().input(input.name)});
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
    reader.require_type(input.name, {value.type.dtype, value.whole});
    reader.read(input.name, session.step().input_box(input.name), session.step().input(input.name));
  }
}

}  // namespace trireme

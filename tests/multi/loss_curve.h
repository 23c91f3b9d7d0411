// The same few training steps on any number of ranks, and how far their results may lie apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/multi/training_support.h"
#include "tests/worst.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::testing_support {

inline constexpr int kSteps = 5;

// A persistent tensor on a rank: what it has of the whole, as it starts and after the last step.
struct Moved {
  Shape whole;
  Box box;  // in the whole; the last of uneven pieces reaches beyond its end
  HostTensor before, after;
  double distance() const { return worst_difference(after.as<float>(), before.as<float>()); }
};

struct Curve {
  std::vector<float> losses;             // by step
  std::map<std::string, Moved> tensors;  // parameters and state
};

// At once: an unoptimised loop over bytes would take most of a test's time.
inline bool have_equal_bytes(const View& a, const View& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0;
}

inline HostTensor copy_of(const View& view) {
  HostTensor out(view.type);
  std::ranges::copy(view.raw(), out.view().raw().begin());
  return out;
}

// Of a step's executor whose parameters and state are there, and of the same after its last step.
inline void note_start(Executor& step, Curve& curve) {
  for (const PlanInput& input : step.plan().inputs) {
    if (input.role != Role::kParameter && input.role != Role::kState) continue;
    curve.tensors[input.name] = {.whole = step.plan().values[static_cast<size_t>(input.value)].whole,
                                 .box = step.input_box(input.name),
                                 .before = copy_of(step.read_input(input.name).view),
                                 .after = {}};
  }
}
inline void note_end(Executor& step, Curve& curve) {
  for (auto& [name, moved] : curve.tensors) moved.after = copy_of(step.read_input(name).view);
}

// Throws unless all ranks of a crew hold the same bits of the parameters and state that each of them has whole.
inline void require_equal_bits(Session& session, comm::World& world, int64_t step) {
  std::vector<int> crew;
  const auto size = static_cast<int>(session.plan().mesh.devices());
  for (int rank = 0; rank < size; ++rank) crew.push_back(session.plan().crew * size + rank);
  for (const PlanInput& input : session.persistent()) {
    const HostPiece held = session.step().read_input(input.name);
    const View own = held.view;
    const Shape& whole = session.step().plan().values[static_cast<size_t>(input.value)].whole;
    if (session.step().input_box(input.name) != Box::whole(whole)) continue;
    const HostTensor first(own.type);
    std::memcpy(first.view().data, own.data, static_cast<size_t>(own.bytes()));
    world.group(crew).broadcast(first.view(), 0).wait();
    require(have_equal_bytes(first.view(), own), "after step {} ranks {} and {} hold different bits of '{}'", step,
            world.rank(), crew[0], input.name);
  }
}

inline Curve train_curve(const Graph& graph, comm::World* world, const Parallel& parallel = {}, float lr = 0.2F,
                         const PassOptions& passes = {}, int steps = kSteps) {
  Session session(graph, std::nullopt,
                  {.world = world, .seed = 5, .compile = {.parallel = parallel, .passes = passes}});
  session.initialise();
  Curve out;
  note_start(session.step(), out);
  for (int64_t step = 1; step <= steps; ++step) {
    out.losses.push_back(train_step(session, step, lr));
    if (world && (step <= kSteps || step == steps)) require_equal_bits(session, *world, step);
  }
  note_end(session.step(), out);
  return out;
}

// Of each rank.
inline std::vector<Curve> train_curves(const Graph& graph, int ranks, const Parallel& parallel, float lr,
                                       const PassOptions& passes = {}, int steps = kSteps) {
  std::vector<Curve> out(static_cast<size_t>(ranks));
  if (ranks == 1) {
    out[0] = train_curve(graph, nullptr, parallel, lr, passes, steps);
    return out;
  }
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {  // each rank has a place of its own
    out[static_cast<size_t>(world.rank())] = train_curve(graph, &world, parallel, lr, passes, steps);
  });
  return out;
}

// How far a run may lie from that of one device, as a share of each tensor's own movement (and of the loss): the ranks'
// shares change only the order in which the terms of a step's sums are added, at most one unit of rounding for each
// term and step.
inline double rounding_share(double terms, int steps = kSteps) {
  return steps * terms * 0x1p-24;
}
// The sums over the batch, and on the way to them those of each product over the width of its weight.
inline double rounding_share(const Graph& graph) {
  int64_t targets = 0, terms = 0;
  for (const Input& input : graph.inputs()) {
    const Shape& shape = graph.type(input.value).shape;
    if (input.role == Role::kData) targets = shape.elements();  // the last field
    if (input.role == Role::kParameter && shape.rank() > 1) terms += shape[shape.rank() - 1];
  }
  return rounding_share(static_cast<double>(targets + terms));
}
// All but SGD divide a gradient by its own size, so what is small among the terms of its sum moves as far as all else,
// and is known the worse.
inline double rounding_share(const Graph& graph, const Optimizer& optimizer) {
  return (optimizer.spec().kind() == "sgd" ? 1 : 8) * rounding_share(graph);
}

// What is wrong with a rank's piece of a tensor that should be that of one device; "" when nothing is. An update is
// rounded as the elements are, each time.
inline std::string difference_of(const Moved& piece, const Moved& whole, double share, size_t steps = kSteps) {
  const double bound =
      share * whole.distance() + static_cast<double>(steps) * 0x1p-24 * largest_of(whole.after.as<float>());
  HostTensor expected(piece.after.type());
  std::ranges::fill(expected.view().raw(), std::byte{0});  // what an uneven piece holds beyond the end
  copy_region(whole.after.view(), Box::whole(whole.whole), expected.view(), piece.box, held(piece.box, whole.whole));
  const double off = worst_difference(piece.after.as<float>(), expected.as<float>());
  return off <= bound ? "" : fmt::format("is {} off, not {}; it moved by {}", off, bound, whole.distance());
}

// What is wrong with a curve that should be that of one device; "" when nothing is.
inline std::string difference_of(const Curve& curve, const Curve& whole, double share) {
  const double bound = share * static_cast<double>(whole.losses[0]);
  const auto [lowest, highest] = std::minmax_element(whole.losses.begin(), whole.losses.end());
  if (!(*highest - *lowest >= 20 * bound)) return "the curve is too flat to tell anything";
  for (size_t i = 0; i < whole.losses.size(); ++i) {
    if (std::fabs(static_cast<double>(curve.losses[i]) - whole.losses[i]) <= bound) continue;
    return fmt::format("the loss of step {} is {}, not {} within {}", i + 1, curve.losses[i], whole.losses[i], bound);
  }
  if (curve.losses.size() != whole.losses.size()) return "the curves differ in length";
  if (curve.tensors.size() != whole.tensors.size()) return "the tensors differ in number";
  for (const auto& [name, moved] : whole.tensors) {
    const std::string found = difference_of(curve.tensors.at(name), moved, share, whole.losses.size());
    if (!found.empty()) return name + " " + found;
  }
  return "";
}

// The mistakes that the comparison would let pass: a tensor without half of one step's update, without any, and one
// with an element that is no number. "" when it notices them all.
inline std::string let_pass(const Curve& whole, double share) {
  std::string out;
  for (const auto& [name, moved] : whole.tensors) {
    const auto passes = [&, &name = name, &moved = moved](const std::string& what, const auto& change) {
      Moved wrong{moved.whole, moved.box, {}, moved.after.clone()};
      change(moved.before.as<float>(), wrong.after.as<float>());
      if (difference_of(wrong, moved, share, whole.losses.size()).empty()) out += fmt::format("{} {}\n", name, what);
    };
    const auto without = [](float part) {
      return [part](std::span<const float> before, std::span<float> after) {
        for (size_t i = 0; i < after.size(); ++i) after[i] += part * (before[i] - after[i]);
      };
    };
    passes("without half of a step's update", without(0.5F / static_cast<float>(whole.losses.size())));
    passes("without its updates", without(1));
    passes("with an element that is no number", [](auto, std::span<float> after) { after.back() = NAN; });
  }
  return out;
}

// The same run with losses that are so many times as large.
inline Curve with_losses_times(float factor, const Curve& curve) {
  Curve out;
  for (const float loss : curve.losses) out.losses.push_back(factor * loss);
  for (const auto& [name, moved] : curve.tensors)
    out.tensors[name] = {moved.whole, moved.box, copy_of(moved.before.view()), copy_of(moved.after.view())};
  return out;
}

// What is wrong with a run in crews, of which each rank has the tensors of its stages; together they have all.
inline std::string difference_of_crews(const Curve& whole, const std::vector<Curve>& ranks, double share) {
  std::set<std::string> seen;
  for (const Curve& curve : ranks) {
    Curve own{whole.losses, {}};
    for (const auto& [name, moved] : curve.tensors) {
      const Moved& of = whole.tensors.at(name);
      own.tensors[name] = {of.whole, of.box, copy_of(of.before.view()), copy_of(of.after.view())};
      seen.insert(name);
    }
    const std::string found = difference_of(curve, own, share);
    if (!found.empty()) return found;
  }
  return seen.size() == whole.tensors.size() ? "" : "some tensor is on no rank";
}

// Where a rank's losses, parameters or state have other bits in the second run, cut alike; "" when all are the same.
inline std::string other_bits(std::span<const Curve> first, std::span<const Curve> second) {
  for (size_t rank = 0; rank < first.size(); ++rank) {
    if (first[rank].losses != second[rank].losses) return fmt::format("the losses of rank {}", rank);
    if (first[rank].tensors.size() != second[rank].tensors.size()) return "the tensors differ in number";
    for (const auto& [name, moved] : first[rank].tensors) {
      const View other = second[rank].tensors.at(name).after.view();
      if (!have_equal_bytes(moved.after.view(), other)) return fmt::format("{} of rank {}", name, rank);
    }
  }
  return "";
}

// What is wrong with ranks that should train as another run does, whose tensors are whole, within this share; or with
// the comparison itself. "" when nothing is.
inline std::string difference_from(const Curve& whole, const std::vector<Curve>& ranks, double share) {
  std::string out = let_pass(whole, share);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string found = difference_of(ranks[rank], whole, share);
    if (!found.empty()) out += fmt::format("rank {}: {}\n", rank, found);
  }
  return out;
}

// The same from one device.
inline std::string difference_on(int ranks, const Graph& graph, const Parallel& parallel, float lr,
                                 const PassOptions& passes = {}) {
  return difference_from(train_curve(graph, nullptr, {}, lr), train_curves(graph, ranks, parallel, lr, passes),
                         rounding_share(graph));
}

}  // namespace trireme::testing_support

// Sessions on devices whose memory the host cannot touch, and on those that are only described.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/mesh/machine.h"
#include "trireme/nn/models/mlp.h"
#include "trireme/ops/ops.h"
#include "trireme/pass/fuse_rows.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/step/compile/compile.h"
#include "trireme/train/step/graphs/step.h"
#include "trireme/train/step/session/session.h"

namespace trireme::session_device_test {
namespace {

using testing::HasSubstr;

const std::vector<BatchField> kFields{{"x", {DType::kF32, {8, 6}}}, {"y", {DType::kI32, {8}}}};

LossFn loss_of_classes() {
  return [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); };
}
Graph step_graph() {
  nn::Mlp mlp({6, 5, 4});
  return training_step([&](const Tensor& x) { return mlp(x); }, loss_of_classes(), kFields, AdamW{});
}
Graph evaluation_graph() {
  nn::Mlp mlp({6, 5, 4});
  return evaluation([&](const Tensor& x) { return mlp(x); }, loss_of_classes(), kFields, {.accuracy = true});
}

// Runs the body as one rank without a world, or on that many.
void on_ranks(int ranks, const std::function<void(comm::World*)>& body) {
  if (ranks == 1) return body(nullptr);
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) { body(&world); });
}

class Folder {
 public:
  Folder() { EXPECT_NE(::mkdtemp(path_.data()), nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "trireme-session-XXXXXX";
};

// What a session has after some steps, a checkpoint and an evaluation, on a device; the same on every one.
struct Trained {
  std::vector<float> losses;
  float correct = 0;
  std::vector<std::string> tensors;
  friend bool operator==(const Trained&, const Trained&) = default;
};

void fill_on(Executor& executor) {
  const std::vector<std::string> names{"x", "y"};
  executor.fill_inputs(names, [](std::span<const View> views) {
    for (float& x : views[0].as<float>()) x = 0.25F;
    for (int32_t& y : views[1].as<int32_t>()) y = 3;
  });
}

float step_on(Session& session, int64_t number) {
  fill_on(session.step());
  session.step().write_number("lr", 0.1F);
  session.step().write_number("step", number);
  session.step().run();
  return session.step().read_number<float>("loss");
}

Trained trained_on(const std::string& device, int ranks, bool broadcast) {
  const Folder folder;
  Trained out;
  on_ranks(ranks, [&](comm::World* world) {
    const Session::Options how{.world = world,
                               .seed = 4 + static_cast<uint64_t>(broadcast && world != nullptr ? world->rank() : 0),
                               .parameter_broadcast = broadcast,
                               .compile = {.device = make_device(device)}};
    Session session(step_graph(), evaluation_graph(), how);
    session.initialise();
    std::vector<float> losses;
    for (int64_t number = 1; number <= 3; ++number) losses.push_back(step_on(session, number));
    save_session(session, world, {.root = folder.path(), .step = 3});
    Session again(step_graph(), evaluation_graph(), how);
    load_session(again, ckpt::Reader(folder.path()));
    losses.push_back(step_on(again, 4));
    fill_on(again.evaluation());
    again.evaluation().run();
    if (world != nullptr && world->rank() != 0) return;
    out.losses = losses;
    out.correct = again.evaluation().read_number<float>("correct");
    for (const PlanInput& input : again.persistent()) {
      const HostPiece piece = again.step().read_input(input.name);
      out.tensors.emplace_back(reinterpret_cast<const char*>(piece.view.raw().data()), piece.view.raw().size());
    }
  });
  return out;
}

TEST(SessionOnGuarded, trains_saves_loads_and_evaluates_to_the_bits_of_the_cpu) {
  for (const int ranks : {1, 2, 4}) {
    for (const bool broadcast : {false, true}) {
      EXPECT_EQ(trained_on("guarded:3", ranks, broadcast), trained_on("cpu", ranks, broadcast)) << ranks;
    }
  }
}

TEST(SessionOnDescribed, is_planned_and_not_run) {
  const Folder folder;
  const std::string path = folder.path() + "/toy.toml";
  Machine machine = Machine::this_host();
  machine.name = "toy";
  machine.memory_bytes = int64_t{1} << 30;
  write_machine(machine, path);
  const auto text_of = [&] {
    try {
      Session session(step_graph(), std::nullopt, {.compile = {.device = make_device("described:" + path)}});
    } catch (const Error& e) {
      return e.text();
    }
    return std::string();
  };
  EXPECT_THAT(text_of(), HasSubstr("describes device 'toy' and has no kernels for it"));
  machine.memory_bytes = 64;
  write_machine(machine, path);
  EXPECT_THAT(text_of(), testing::ContainsRegex("takes [0-9.]+ K?i?B on each rank"));
  EXPECT_THAT(text_of(), HasSubstr("device 'toy' has 64 B; cut it over more ranks"));
}

TEST(SessionOnDescribed, products_of_bf16_are_fused_with_what_follows_where_the_device_has_it_so) {
  const Folder folder;
  const auto fused_on = [&](double to_host_bytes_per_s, DType compute) {
    Machine machine = Machine::this_host();
    machine.to_host_bytes_per_s = machine.from_host_bytes_per_s = to_host_bytes_per_s;
    const std::string path = folder.path() + "/toy.toml";
    write_machine(machine, path);
    nn::Mlp mlp({6, 5, 4});
    Graph graph = training_step([&](const Tensor& x) { return mlp(x); }, loss_of_classes(), kFields, AdamW{},
                                {.compute = compute});
    const Compiled made =
        compile(std::move(graph), {.device = make_device("described:" + path), .passes = {.fused_product_bytes = 1}});
    return fused_text(made.crews[0].program);
  };
  EXPECT_THAT(fused_on(0, DType::kBF16), HasSubstr("matmul"));
  EXPECT_THAT(fused_on(64e9, DType::kBF16), testing::Not(HasSubstr("matmul")));
  EXPECT_THAT(fused_on(64e9, DType::kF32), HasSubstr("matmul"));
}

}  // namespace
}  // namespace trireme::session_device_test

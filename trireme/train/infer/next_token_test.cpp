#include "trireme/train/infer/next_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/tensor/convert.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/loop/trainer.h"
#include "trireme/train/step/session/initialise.h"

namespace trireme::next_token_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kContext = 6;

JobConfig model_of_kind(const std::string& kind, std::vector<std::string> more = {}) {
  JobConfig config;
  std::vector<std::string> keys{"model.kind=" + kind, "model.layers=2", "model.width=8", "model.heads=2",
                                fmt::format("data.seq={}", kContext)};
  keys.insert(keys.end(), more.begin(), more.end());
  set_keys(config, keys);
  return config;
}

class Parameters {
 public:
  explicit Parameters(const JobConfig& config) {
    const auto model = make_model(config);
    Assembly assembly = assembly_of(config, *model, 1);
    assembly.batch = batch_of(config, 1);
    const Graph graph = inference_of(assembly, 1);
    for (const Input& input : graph.inputs()) {
      if (input.role != Role::kParameter) continue;
      HostTensor tensor(graph.type(input.value));
      initialise(tensor.view(), Box::whole(tensor.shape()), tensor.shape(), input.init, 7, input.name);
      for (float& x : tensor.as<float>()) x *= 3;  // so that a token's prediction is no matter of the last one alone
      tensors_.emplace(input.name, std::move(tensor));
    }
  }
  // Of the types that they have in this job.
  Parameters as_in(const JobConfig& config) const {
    const auto model = make_model(config);
    Assembly assembly = assembly_of(config, *model, 1);
    assembly.batch = batch_of(config, 1);
    const Graph graph = inference_of(assembly, 1);
    Parameters out;
    for (const auto& [name, tensor] : tensors_) {
      HostTensor made(graph.type(graph.input(name).value));
      convert(tensor.view(), made.view());
      out.tensors_.emplace(name, std::move(made));
    }
    return out;
  }
  ParametersByName by_name() const {
    return [this](std::string_view name) { return tensors_.find(name)->second.view(); };
  }

 private:
  Parameters() = default;
  std::map<std::string, HostTensor, std::less<>> tensors_;
};

std::vector<float> copy(std::span<const float> x) {
  return {x.begin(), x.end()};
}

// Logits of whole sequences: of a model that has seen one token more than it can keep.
std::vector<float> of_whole(const JobConfig& config, const Parameters& parameters, const std::vector<int32_t>& tokens) {
  const auto model = make_model(config);
  Assembly assembly = assembly_of(config, *model, 1);
  assembly.batch = {{"tokens", {DType::kI32, {1, std::ssize(tokens)}}}};
  CompileOptions how = compile_options(assembly, {}, 1, 1);
  how.external_parameters = true;
  const Compiled compiled = compile(inference_of(assembly, 1), how);
  const auto external = [&](std::string_view name) {
    View view = parameters.by_name()(name);
    return view.with({view.type.dtype, compiled.graph.type(compiled.graph.input(name).value).shape});
  };
  Executor executor(compiled.plan(), {.external = external});
  std::ranges::copy(tokens, executor.input("tokens").as<int32_t>().begin());
  executor.run();
  const auto logits = executor.read_output("prediction").as<float>();
  return copy(logits.last(256));
}

class EveryKind : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  JobConfig config() const { return model_of_kind(GetParam().front(), {GetParam().begin() + 1, GetParam().end()}); }
};

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKind,
                         testing::Values(std::vector<std::string>{"gpt"}, std::vector<std::string>{"llama"},
                                         std::vector<std::string>{"llama", "model.kv_heads=1", "model.tied=true"},
                                         std::vector<std::string>{"deepseek", "model.experts=0"}));

TEST_P(EveryKind, predicts_token_by_token_what_it_predicts_of_the_whole_sequence) {
  const Parameters parameters(config());
  NextTokens model(config(), parameters.by_name(), nullptr);
  ASSERT_TRUE(model.can_decode());
  std::vector<int32_t> tokens;
  for (const int32_t token : {65, 3, 200, 65, 9, 77}) {
    tokens.push_back(token);
    const std::vector<float> got = copy(model.logits(tokens));
    const std::vector<float> want = of_whole(config(), parameters, tokens);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-4) << tokens.size() << " tokens, logit " << i;
  }
}

// Prompts that fill no block, some, and one at the end of which no whole block has room; and the tokens after them.
TEST_P(EveryKind, reads_a_prompt_in_blocks_as_token_by_token) {
  constexpr int64_t kRoom = 150;
  JobConfig longer = config();
  set_keys(longer, {fmt::format("data.seq={}", kRoom)});
  const Parameters parameters(longer);
  std::vector<int32_t> text;
  for (int32_t i = 0; i < kRoom; ++i) text.push_back((i * 37 + i * i) % 256);
  NextTokens by_token(longer, parameters.by_name(), nullptr);
  std::vector<std::vector<float>> want;
  for (size_t count = 1; count <= text.size(); ++count)
    want.push_back(copy(by_token.logits(std::span(text).first(count))));
  for (const size_t prompt : {2, 8, 9, 10, 64, 65, 66, 73, 74, 129, 140, 148}) {
    NextTokens model(longer, parameters.by_name(), nullptr);
    for (size_t count = prompt; count <= std::min(prompt + 2, text.size()); ++count) {
      const std::vector<float> got = copy(model.logits(std::span(text).first(count)));
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[count - 1][i], 1e-4) << "a prompt of " << prompt << ", " << count << " tokens, " << i;
    }
  }
}

TEST_P(EveryKind, begins_anew_where_the_tokens_do_not_go_on) {
  const Parameters parameters(config());
  NextTokens one(config(), parameters.by_name(), nullptr), other(config(), parameters.by_name(), nullptr);
  one.logits(std::vector<int32_t>{1, 2, 3, 4, 5});
  EXPECT_EQ(copy(one.logits(std::vector<int32_t>{1, 7, 3})), copy(other.logits(std::vector<int32_t>{1, 7, 3})));
  EXPECT_EQ(copy(one.logits(std::vector<int32_t>{1, 7, 3})), copy(other.logits(std::vector<int32_t>{1, 7, 3})));
}

// Whose predictions the host has as a copy.
TEST(NextTokens, predict_the_same_on_a_device_that_the_host_cannot_touch) {
  const JobConfig config = model_of_kind("gpt"), guarded = model_of_kind("gpt", {"train.device=guarded"});
  const Parameters parameters(config);
  NextTokens here(config, parameters.by_name(), nullptr), there(guarded, parameters.by_name(), nullptr);
  const std::vector<int32_t> few{1, 2, 3}, more{9, 8, 1, 2, 3, 4, 5, 6};  // token by token, and all at once
  EXPECT_EQ(copy(there.logits(few)), copy(here.logits(few)));
  EXPECT_EQ(copy(there.logits(more)), copy(here.logits(more)));
}

TEST(NextTokens, more_than_fit_are_the_last_ones_from_the_first_position_on) {
  const JobConfig config = model_of_kind("gpt");
  const Parameters parameters(config);
  NextTokens model(config, parameters.by_name(), nullptr);
  const std::vector<float> got = copy(model.logits(std::vector<int32_t>{9, 8, 1, 2, 3, 4, 5, 6}));
  const std::vector<float> want = copy(model.logits(std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;
}

// Where experts have room for few tokens, a prediction depends on the other tokens of the batch.
TEST(NextTokens, a_mixture_of_experts_is_asked_for_whole_sequences) {
  const JobConfig config = model_of_kind("gpt", {"model.experts=2"});
  const Parameters parameters(config);
  NextTokens model(config, parameters.by_name(), nullptr);
  EXPECT_FALSE(model.can_decode());
  EXPECT_EQ(model.logits(std::vector<int32_t>{1, 2}).size(), 256U);
  EXPECT_THROW(model.bytes_read(1), Error);
}

// Of groups that are of the whole batch a sequence has its share.
TEST(NextTokens, of_a_mixture_whose_groups_are_of_many_sequences_are_those_of_one_group) {
  const std::vector<int32_t> tokens{1, 2, 3};
  const JobConfig alone = model_of_kind("gpt", {"model.experts=2"});
  const Parameters parameters(alone);
  NextTokens one(alone, parameters.by_name(), nullptr);
  for (const char* groups : {"model.expert_groups=4", "model.expert_groups=8"}) {
    const JobConfig grouped = model_of_kind("gpt", {"model.experts=2", "train.batch=8", groups});
    NextTokens model(grouped, parameters.by_name(), nullptr);
    EXPECT_EQ(copy(model.logits(tokens)), copy(one.logits(tokens))) << groups;
  }
}

// A checkpoint of the model as it starts.
std::string saved(const JobConfig& config, const TempDirectory& folder) {
  const auto model = make_model(config);
  Assembly assembly = assembly_of(config, *model, 1);
  assembly.batch = batch_of(config, 1);
  Session session(inference_of(assembly, 1), std::nullopt, {.seed = 7});
  session.initialise();
  return save_session(session, nullptr, {.root = folder.path(), .step = 1});
}

// Of few tokens, one after the other, and of more than fit.
std::vector<std::vector<float>> some_logits(NextTokens& model) {
  std::vector<std::vector<float>> out;
  for (const std::vector<int32_t>& tokens :
       {std::vector<int32_t>{65}, {65, 3, 200}, {65, 3, 200, 9}, {9, 8, 1, 2, 3, 4, 5, 6}})
    out.push_back(copy(model.logits(tokens)));
  return out;
}

TEST_P(EveryKind, predicts_on_ranks_that_share_it_what_one_rank_predicts) {
  const TempDirectory folder;
  const ckpt::Reader checkpoint(saved(config(), folder));
  NextTokens one(config(), checkpoint, nullptr, nullptr, 8);
  const std::vector<std::vector<float>> want = some_logits(one);
  std::mutex mutex;
  const bool heads_divide = std::ranges::count(GetParam(), "model.kv_heads=1") == 0;
  for (const auto& [ranks, tp, pp] : {std::array{2, 2, 1}, std::array{2, 1, 2}, std::array{4, 2, 2}}) {
    if (tp > 1 && !heads_divide) continue;
    JobConfig cut = config();
    set_keys(cut, {"parallel.mode=semi_auto_parallel", fmt::format("parallel.tp={}", tp),
                   fmt::format("parallel.pp={}", pp)});
    comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
      NextTokens model(cut, checkpoint, &world, nullptr, 8);
      const std::vector<std::vector<float>> got = some_logits(model);
      const std::lock_guard lock(mutex);
      for (size_t k = 0; k < want.size(); ++k) {
        ASSERT_EQ(got[k].size(), want[k].size());
        for (size_t i = 0; i < want[k].size(); ++i)
          ASSERT_NEAR(got[k][i], want[k][i], 1e-5) << "rank " << world.rank() << " of tp " << tp << ", pp " << pp;
      }
    });
  }
}

// Of ranks that share the model, each of which keeps its pieces of keys and values. The first prompt goes in blocks,
// the second shares its beginning with the first and goes on by a block, the third begins anew.
TEST_P(EveryKind, reads_prompts_in_blocks_on_ranks_that_share_it) {
  JobConfig longer = config();
  set_keys(longer, {"data.seq=150"});
  const TempDirectory folder;
  const ckpt::Reader checkpoint(saved(longer, folder));
  std::vector<int32_t> text, other;
  for (int32_t i = 0; i < 150; ++i) text.push_back((i * 37 + i * i) % 256);
  for (int32_t i = 0; i < 90; ++i) other.push_back((i * 11 + 5) % 256);
  const std::vector<std::span<const int32_t>> prompts{std::span(text).first(70), std::span(text).first(140), other};
  const auto logits_of = [&](NextTokens& model) {
    std::vector<std::vector<float>> out;
    for (const std::span<const int32_t> prompt : prompts) out.push_back(copy(model.logits(prompt)));
    return out;
  };
  std::vector<std::vector<float>> want;
  for (const std::span<const int32_t> prompt : prompts) {  // token by token
    NextTokens model(longer, checkpoint, nullptr, nullptr, 8);
    for (size_t count = 1; count < prompt.size(); ++count) model.logits(prompt.first(count));
    want.push_back(copy(model.logits(prompt)));
  }
  std::mutex mutex;
  const bool heads_divide = std::ranges::count(GetParam(), "model.kv_heads=1") == 0;
  for (const auto& [ranks, tp, pp] : {std::array{1, 1, 1}, std::array{2, 2, 1}, std::array{2, 1, 2}}) {
    if (tp > 1 && !heads_divide) continue;
    JobConfig cut = longer;
    if (ranks > 1)
      set_keys(cut, {"parallel.mode=semi_auto_parallel", fmt::format("parallel.tp={}", tp),
                     fmt::format("parallel.pp={}", pp)});
    comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
      NextTokens model(cut, checkpoint, &world, nullptr, 8);
      const std::vector<std::vector<float>> got = logits_of(model);
      const std::lock_guard lock(mutex);
      for (size_t k = 0; k < want.size(); ++k) {
        for (size_t i = 0; i < want[k].size(); ++i)
          ASSERT_NEAR(got[k][i], want[k][i], 1e-4) << "rank " << world.rank() << " of tp " << tp << ", pp " << pp;
      }
    });
  }
}

// The block's graph and the token's have the same keys and values there, not copies of their own.
TEST(NextTokens, read_a_prompt_in_blocks_on_a_device_that_the_host_cannot_touch) {
  const JobConfig config = model_of_kind("gpt", {"data.seq=80"});
  const JobConfig guarded = model_of_kind("gpt", {"data.seq=80", "train.device=guarded"});
  const TempDirectory folder;
  const ckpt::Reader checkpoint(saved(config, folder));
  NextTokens here(config, checkpoint, nullptr, nullptr, 80), there(guarded, checkpoint, nullptr, nullptr, 80);
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 72; ++i) text.push_back((i * 37 + i * i) % 256);
  for (const size_t count : {70, 72}) {
    const std::span<const int32_t> prompt = std::span(text).first(count);
    EXPECT_EQ(copy(there.logits(prompt)), copy(here.logits(prompt)));
  }
}

double norm_of(std::span<const float> x, std::span<const float> less = {}) {
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) squares += std::pow(x[i] - (less.empty() ? 0 : less[i]), 2);
  return std::sqrt(squares);
}

// Parameters that were rounded once give the bits that they give where they are rounded as they are read.
TEST_P(EveryKind, predicts_in_bf16_by_parameters_in_bf16) {
  const Parameters parameters(config());
  const Parameters rounded = parameters.as_in(predicting_in(DType::kBF16, config()));
  NextTokens exact(config(), parameters.by_name(), nullptr);
  NextTokens model(config(), rounded.by_name(), nullptr, DType::kBF16);
  JobConfig rounds = config();
  rounds.train.step.compute = DType::kBF16;
  const std::vector<int32_t> fit{1, 2, 3, 4, 5, 6}, more{9, 1, 2, 3, 4, 5, 6};  // token by token, and all at once
  EXPECT_EQ(copy(model.logits(more)), of_whole(rounds, parameters, fit));
  const std::vector<float> want = copy(exact.logits(fit)), got = copy(model.logits(fit));
  EXPECT_GT(norm_of(got, want), 0);
  EXPECT_LT(norm_of(got, want), 0.05 * norm_of(want));
  EXPECT_LT(model.bytes_read(3), 0.7 * exact.bytes_read(3));
}

TEST_P(EveryKind, reads_a_checkpoint_of_f32_in_bf16) {
  const TempDirectory folder;
  const ckpt::Reader checkpoint(saved(config(), folder));
  NextTokens exact(config(), checkpoint, nullptr, nullptr, 8);
  const std::vector<std::vector<float>> want = some_logits(exact);
  JobConfig cut = config();
  set_keys(cut, {"parallel.mode=semi_auto_parallel", "parallel.pp=2"});
  std::mutex mutex;
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    NextTokens model(cut, checkpoint, &world, nullptr, 8, DType::kBF16);
    const std::vector<std::vector<float>> got = some_logits(model);
    const std::lock_guard lock(mutex);
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_GT(norm_of(got[k], want[k]), 0);
      EXPECT_LT(norm_of(got[k], want[k]), 0.05 * norm_of(want[k])) << "rank " << world.rank() << ", tokens " << k;
    }
  });
}

TEST(NextTokens, of_as_many_as_fit_take_no_memory_for_whole_sequences) {
  const JobConfig config = model_of_kind("gpt");
  const TempDirectory folder;
  const ckpt::Reader checkpoint(saved(config, folder));
  NextTokens few(config, checkpoint, nullptr, nullptr, kContext), more(config, checkpoint, nullptr, nullptr, 8);
  const std::vector<int32_t> tokens{1, 2, 3, 4, 5, 6}, beyond{1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(copy(few.logits(tokens)), copy(more.logits(tokens)));
  EXPECT_EQ(more.logits(beyond).size(), 256U);
  EXPECT_THROW(few.logits(beyond), Error);
}

TEST(NextTokens, a_mixture_is_shared_by_ranks_too) {
  const JobConfig config = model_of_kind("gpt", {"model.experts=2"});
  const TempDirectory folder;
  const ckpt::Reader checkpoint(saved(config, folder));
  NextTokens one(config, checkpoint, nullptr, nullptr, 8);
  const std::vector<float> want = copy(one.logits(std::vector<int32_t>{1, 2}));
  JobConfig cut = config;
  set_keys(cut, {"parallel.mode=semi_auto_parallel", "parallel.tp=2"});
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    NextTokens model(cut, checkpoint, &world, nullptr, 8);
    const std::vector<float> got = copy(model.logits(std::vector<int32_t>{1, 2}));
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5);
  });
}

// The biases that balance a router's experts are state of the model: no zeros for who asks a run for its parameters.
TEST(NextTokens, are_what_a_run_trained_of_its_checkpoint_and_of_the_run_itself) {
  const JobConfig config = model_of_kind("deepseek", {"model.experts=4", "model.bias_rate=0.5", "train.batch=2"});
  const auto model = make_model(config);
  const std::vector<int32_t> tokens{65, 3, 200, 9};
  const TempDirectory folder;
  TrainerOptions options = trainer_options(config, 1);
  options.out = folder.path();
  options.progress = false;
  std::vector<float> of_run;
  bool has_biases = false;
  options.sample = [&](const ParametersByName& parameter) {
    for (const float bias : parameter("model.layers.1.moe.router.bias").as<float>()) has_biases |= bias != 0;
    of_run = copy(NextTokens(config, parameter, nullptr).logits(tokens));
    return std::string();
  };
  Trainer trainer(*model, make_loss(config), make_optimizer(config), options);
  const FitResult result =
      trainer.fit(data::synthetic_tokens({.samples = 8, .seq = kContext, .vocabulary = 256}), {.steps = 3, .batch = 2});
  EXPECT_TRUE(has_biases);
  const ckpt::Reader checkpoint(result.checkpoint);
  EXPECT_EQ(of_run, copy(NextTokens(config, checkpoint, nullptr, nullptr, kContext).logits(tokens)));
}

TEST(NextTokens, of_ranks_that_would_have_parts_of_one_sequence_are_refused) {
  const JobConfig config = model_of_kind("gpt");
  const TempDirectory folder;
  const ckpt::Reader checkpoint(saved(config, folder));
  const auto refusal = [&](const std::vector<std::string>& keys) {
    JobConfig cut = config;
    set_keys(cut, keys);
    std::string out;
    comm::spawn_ranks(2, "threads", [&](comm::World& world) {
      try {
        NextTokens model(cut, checkpoint, &world, nullptr, 8);
      } catch (const Error& e) {
        if (world.rank() == 0) out = e.what();
      }
    });
    return out;
  };
  EXPECT_THAT(refusal({}), HasSubstr("parallel.tp = 1 x pp = 1 is 1, not 2; let their product be the ranks"));
  EXPECT_THAT(refusal({"parallel.mode=semi_auto_parallel", "parallel.cp=2"}),
              HasSubstr("cp = 2 has nothing to cut there; use tp (parallel.tp), pp, or both"));
}

TEST(NextTokens, count_the_bytes_of_a_token) {
  const JobConfig config = model_of_kind("gpt");
  const Parameters parameters(config);
  NextTokens model(config, parameters.by_name(), nullptr);
  // Of each of two layers a key and a value more, 8 numbers of 4 bytes each.
  EXPECT_NEAR(model.bytes_read(3) - model.bytes_read(2), 2 * 2 * 8 * 4, 1e-6);
  // 12 width^2 a layer, and a tied head of 256 rows; the rest is biases, norms and what the ops hand each other.
  const double matrices = 4 * (2 * 12 * 64 + 256 * 8);
  EXPECT_GE(model.bytes_read(0), matrices);
  EXPECT_LE(model.bytes_read(0), 1.5 * matrices);
}

}  // namespace
}  // namespace trireme::next_token_test

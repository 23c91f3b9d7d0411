#include "trireme/train/plan/exports/export_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/train/job/published_models.h"

namespace trireme::export_way_test {
namespace {

JobConfig named(std::string_view model, std::vector<std::string> keys = {}) {
  JobConfig job;
  set_published_model(job, model);
  keys.insert(keys.begin(), {"train.batch=32", "train.dtype=bf16"});
  set_keys(job, keys);
  return job;
}

std::string refused(std::string_view system, const JobConfig& job, const Way& way, int64_t ranks) {
  try {
    export_way(system, job, way, ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Export, to_megatron_gives_flags_of_the_model_and_of_its_cuts) {
  const Way way{.pp = 2, .tp = 2, .sp = true, .zero = 1, .micro_batches = 4, .recompute = WayRecompute::kFull};
  EXPECT_EQ(export_way("megatron", named("gpt2"), way, 8),
            "--num-layers 12\n--hidden-size 768\n--num-attention-heads 12\n--normalization LayerNorm\n"
            "--position-embedding-type learned_absolute\n--attention-dropout 0\n--hidden-dropout 0\n"
            "--vocab-size 50257\n--seq-length 1024\n--max-position-embeddings 1024\n"
            "--tensor-model-parallel-size 2\n--pipeline-model-parallel-size 2\n--context-parallel-size 1\n"
            "--sequence-parallel\n--use-distributed-optimizer\n--recompute-granularity full\n"
            "--recompute-method uniform\n--recompute-num-layers 1\n--micro-batch-size 4\n--global-batch-size 32\n"
            "--bf16\n--clip-grad 1\n");
}

TEST(Export, to_megatron_knows_llamas_and_mixtures) {
  const std::string llama = export_way("megatron", named("llama3-8b"), {.tp = 8}, 8);
  for (const char* flag : {"--group-query-attention\n--num-query-groups 8\n", "--ffn-hidden-size 14336\n", "--swiglu\n",
                           "--rotary-base 500000\n", "--untie-embeddings-and-output-weights\n"})
    EXPECT_THAT(llama, testing::HasSubstr(flag));
  EXPECT_THAT(llama, testing::Not(testing::HasSubstr("expert")));
  const std::string mixture = export_way("megatron", named("mixtral-8x7b"), {.ep = 8}, 8);
  EXPECT_THAT(mixture, testing::HasSubstr("--num-experts 8\n--moe-router-topk 2\n"));
  EXPECT_THAT(mixture, testing::HasSubstr("--expert-model-parallel-size 8\n--micro-batch-size 4\n"));
  EXPECT_THAT(mixture, testing::HasSubstr("--moe-token-dispatcher-type alltoall\n--moe-expert-capacity-factor 1.25\n"
                                          "--moe-token-drop-policy position\n--moe-aux-loss-coeff 0.01\n"));
  EXPECT_THAT(export_way("megatron", named("mixtral-8x7b", {"model.capacity_factor=inf"}), {.ep = 8}, 8),
              testing::Not(testing::HasSubstr("dispatcher")));
  EXPECT_THAT(mixture, testing::Not(testing::HasSubstr("pre-softmax")));
  EXPECT_THAT(export_way("megatron", named("mixtral-8x7b", {"model.top_k=1"}), {.ep = 8}, 8),
              testing::HasSubstr("--moe-router-topk 1\n--moe-router-pre-softmax\n"));
}

TEST(Export, to_megatron_says_how_attention_goes_over_positions) {
  const auto over = [](int64_t cp, const std::vector<std::string>& keys) {
    return export_way("megatron", named("llama3-8b", keys), {.cp = cp}, cp);
  };
  EXPECT_THAT(over(4, {}), testing::HasSubstr("--context-parallel-size 4\n--cp-comm-type a2a\n--micro"));
  EXPECT_THAT(over(16, {}), testing::HasSubstr("--cp-comm-type p2p\n")) << "8 heads of keys";
  EXPECT_THAT(over(4, {"parallel.cp_algorithm=ring"}), testing::HasSubstr("--cp-comm-type p2p\n"));
  EXPECT_THAT(over(8, {"parallel.cp_algorithm=hybrid", "parallel.ulysses_degree=2"}),
              testing::HasSubstr("--cp-comm-type a2a+p2p\n--hierarchical-context-parallel-sizes 2 4\n"));
  EXPECT_THAT(over(1, {}), testing::Not(testing::HasSubstr("comm-type")));
}

TEST(Export, to_torchtitan_gives_training_and_parallelism) {
  const Way way{.pp = 2, .tp = 2, .sp = true, .zero = 3, .micro_batches = 4};
  EXPECT_THAT(export_way("torchtitan", named("llama3-8b", {"data.seq=4096"}), way, 16),
              testing::EndsWith("\n[training]\nlocal_batch_size = 8\nglobal_batch_size = 32\nseq_len = 4096\n"
                                "max_norm = 1\nmixed_precision_param = \"bfloat16\"\n\n[parallelism]\n"
                                "data_parallel_replicate_degree = 1\ndata_parallel_shard_degree = 4\n"
                                "fsdp_reshard_after_forward = \"always\"\ntensor_parallel_degree = 2\n"
                                "pipeline_parallel_degree = 2\npipeline_parallel_schedule = \"1F1B\"\n"
                                "pipeline_parallel_microbatch_size = 2\n"
                                "pipeline_parallel_first_stage_less_layers = 0\n"
                                "pipeline_parallel_last_stage_less_layers = 0\ncontext_parallel_degree = 1\n"
                                "expert_parallel_degree = 1\n\n[activation_checkpoint]\nmode = \"none\"\n"));
  EXPECT_THAT(export_way("torchtitan", named("gpt2"), {.zero = 0, .micro_batches = 2}, 4),
              testing::HasSubstr("local_batch_size = 4\n"));  // the others by accumulation
  EXPECT_THAT(
      export_way("torchtitan", named("llama3-8b", {"parallel.cp_algorithm=ring"}), {.cp = 4, .zero = 2}, 8),
      testing::HasSubstr("context_parallel_degree = 4\ncontext_parallel_rotate_method = \"alltoall\"\nexpert_"));
  EXPECT_THAT(export_way("torchtitan", named("mixtral-8x7b"), {.tp = 2, .ep = 4, .sp = true, .zero = 3}, 8),
              testing::HasSubstr("expert_parallel_degree = 4\nexpert_tensor_parallel_degree = 2\n"));
}

TEST(Export, to_deepspeed_gives_its_file) {
  EXPECT_EQ(export_way("deepspeed", named("gpt2"), {.zero = 2, .micro_batches = 2}, 4),
            "{\n  \"train_batch_size\": 32,\n  \"train_micro_batch_size_per_gpu\": 4,\n"
            "  \"gradient_accumulation_steps\": 2,\n  \"gradient_clipping\": 1,\n"
            "  \"bf16\": { \"enabled\": true },\n  \"zero_optimization\": { \"stage\": 2 }\n}\n");
}

TEST(ExportErrors, name_what_a_system_cannot_say_and_what_to_plan_instead) {
  const JobConfig gpt = named("gpt2");
  EXPECT_EQ(refused("nemo", gpt, {}, 2),
            "export: there is no system 'nemo'; there are megatron, torchtitan, deepspeed");
  EXPECT_EQ(refused("megatron", gpt, {.is_searched = true}, 2),
            "export to megatron: the plan cuts each op by itself (--auto), for which there are no flags; plan without "
            "it by --only auto=false");
  EXPECT_EQ(
      refused("megatron", gpt, {.zero = 3}, 2),
      "export to megatron: its distributed optimizer slices the state alone, and the plan has --zero 3; plan with "
      "--only zero=1");
  EXPECT_EQ(refused("megatron", gpt, {.pp = 2, .micro_batches = 2, .schedule = WaySchedule::kZbH1}, 2),
            "export to megatron: it has no schedule 'zb-h1'; plan with --only schedule=1f1b");
  EXPECT_THAT(refused("megatron", gpt, {.recompute = WayRecompute::kSelective}, 2),
              testing::HasSubstr("selective recomputation"));
  EXPECT_THAT(refused("megatron", gpt, {.pp = 8, .micro_batches = 8}, 8),
              testing::HasSubstr("12 layers do not divide over 8 stages"));
  EXPECT_THAT(refused("torchtitan", gpt, {.tp = 2}, 2), testing::HasSubstr("plan with --only sp=true"));
  EXPECT_THAT(refused("torchtitan", gpt, {.zero = 1}, 2), testing::HasSubstr("plan with --only zero=2"));
  EXPECT_THAT(refused("torchtitan", gpt, {.tp = 2, .sp = true}, 4), testing::HasSubstr("whole copies of a model"));
  EXPECT_THAT(refused("torchtitan", gpt, {.cp = 2}, 2), testing::HasSubstr("over the ranks of context"));
  EXPECT_THAT(refused("torchtitan", gpt, {.cp = 2, .zero = 2}, 2),
              testing::HasSubstr("plan with --set parallel.cp_algorithm=ring"));
  EXPECT_THAT(refused("torchtitan", gpt, {.pp = 8, .micro_batches = 8}, 8), testing::HasSubstr("over 8 stages"));
  EXPECT_THAT(
      refused("torchtitan", named("mixtral-8x7b", {"parallel.cp_algorithm=ring"}), {.cp = 4, .ep = 2, .zero = 2}, 8),
      testing::HasSubstr("are among those that share experts, and --ep is 2"));
  for (const char* system : {"megatron", "torchtitan", "deepspeed"})
    EXPECT_THAT(refused(system, named("gpt2", {"parallel.zero_shard_size=2"}), {.zero = system[0] == 'm' ? 1 : 2}, 4),
                testing::HasSubstr("parallel.zero_shard_size = 2"))
        << system;
  EXPECT_EQ(refused("deepspeed", gpt, {.tp = 2}, 2),
            "export to deepspeed: --tp 2 is set in its program, not in its file; plan with --only tp=1");
  EXPECT_THAT(refused("deepspeed", gpt, {.recompute = WayRecompute::kFull}, 2), testing::HasSubstr("recompute=none"));
  EXPECT_EQ(refused("deepspeed", gpt, {}, 5),
            "export: a batch of 32 samples does not divide over 5 copies of the model and 1 micro-batch");
}

TEST(ExportErrors, megatron_refuses_models_that_its_flags_do_not_say) {
  for (const char* model : {"deepseek-v3", "bert-base", "t5-small", "resnet50", "vit-b16"}) {
    EXPECT_THAT(refused("megatron", named(model), {}, 2), testing::StartsWith("export to megatron: ")) << model;
  }
  EXPECT_THAT(refused("megatron", named("gpt2", {"model.experts=4", "model.expert_groups=2"}), {}, 2),
              testing::HasSubstr("model.expert_groups"));
}

// Of the same keys as a GPT, and made in another way.
class NoGpt final : public nn::ModelSpecOf<NoGpt> {
 public:
  std::string_view kind() const override { return "no_gpt"; }
  std::string_view doc() const override { return ""; }
  nn::Task task() const override { return nn::Task::kTokens; }
  std::vector<Key> keys() override {
    return {{"layers", &layers_, ""}, {"width", &width_, ""}, {"heads", &heads_, ""}, {"vocabulary", &vocabulary_, ""}};
  }
  std::vector<FieldNeed> needs() const override { return nn::model_spec("gpt")->needs(); }
  std::unique_ptr<nn::Module> make(std::span<const FieldSpec>) const override { return nullptr; }
  double least_parameters(std::span<const FieldSpec>) const override { return 0; }
  std::string describe() const override { return ""; }

 private:
  int64_t layers_ = 4, width_ = 256, heads_ = 4, vocabulary_ = 256;
};

TEST(ExportErrors, megatron_refuses_a_decoder_that_has_a_gpts_keys_and_is_none) {
  JobConfig job = named("gpt2");
  job.model.kind = "no_gpt";
  job.model.spec = std::unique_ptr<nn::ModelSpec>(std::make_unique<NoGpt>());
  EXPECT_EQ(refused("megatron", job, {}, 2),
            "export to megatron: pretrain_gpt.py trains decoders as GPT-2 and Llama are, and not model.kind = "
            "'no_gpt'; there are no flags for it");
}

}  // namespace
}  // namespace trireme::export_way_test

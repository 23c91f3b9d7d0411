#include "trireme/train/job/published_models.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/step/graphs/step.h"

namespace trireme {
namespace {

constexpr std::string_view kGpt2 = "Radford et al., 2019; counts of the released weights";
// The sizes of Table 2.1, where 1.3B has 24 heads of 128 beside a width of 2,048 and 13B a width of 5,140: here 16
// heads, and 5,120.
constexpr std::string_view kGpt3 = "Brown et al., 2020";
constexpr std::string_view kLlama2 = "Touvron et al., 2023; counts of the released weights";
constexpr std::string_view kLlama3 = "Dubey et al., 2024; counts of the released weights";
constexpr std::string_view kMixtral = "Jiang et al., 2024; counts of the released weights";
constexpr std::string_view kDeepSeek =
    "DeepSeek-AI, 2024; counts of the released weights, without what predicts a second token";
constexpr std::string_view kBert = "Devlin et al., 2018; counts of Hugging Face's BertForMaskedLM";
constexpr std::string_view kT5 = "Raffel et al., 2020; counts of the released weights";
constexpr std::string_view kResNet = "He et al., 2015; counts of torchvision's weights";
constexpr std::string_view kWide = "Zagoruyko and Komodakis, 2016; counts of torchvision's weights";
constexpr std::string_view kVit = "Dosovitskiy et al., 2020; counts of the released weights";

PublishedModel gpt2(std::string_view name, std::string_view layers, std::string_view width, std::string_view heads,
                    int64_t published) {
  return {name,
          {"model.kind=gpt", layers, width, heads, "model.vocabulary=50257", "data.seq=1024"},
          published,
          false,
          kGpt2};
}

PublishedModel gpt3(std::string_view name, std::string_view layers, std::string_view width, std::string_view heads,
                    int64_t published) {
  return {name,
          {"model.kind=gpt", layers, width, heads, "model.vocabulary=50257", "data.seq=2048"},
          published,
          true,
          kGpt3};
}

PublishedModel llama2(std::string_view name, std::string_view layers, std::string_view width, std::string_view heads,
                      std::string_view kv_heads, std::string_view mlp_width, int64_t published) {
  return {name,
          {"model.kind=llama", layers, width, heads, kv_heads, mlp_width, "model.vocabulary=32000", "data.seq=4096"},
          published,
          false,
          kLlama2};
}

PublishedModel llama3(std::string_view name, std::string_view layers, std::string_view width, std::string_view heads,
                      std::string_view mlp_width, std::string_view tied, int64_t published) {
  return {name,
          {"model.kind=llama", layers, width, heads, "model.kv_heads=8", mlp_width, tied, "model.vocabulary=128256",
           "model.rope_theta=500000", "data.seq=8192"},
          published,
          false,
          kLlama3};
}

PublishedModel mixtral(std::string_view name, std::string_view layers, std::string_view width, std::string_view heads,
                       std::string_view mlp_width, std::string_view vocabulary, int64_t published) {
  return {name,
          {"model.kind=llama", layers, width, heads, "model.kv_heads=8", mlp_width, "model.experts=8", "model.top_k=2",
           vocabulary, "model.rope_theta=1000000", "data.seq=4096"},
          published,
          false,
          kMixtral};
}

// Their attention is the same but for the heads and the rank of the queries.
PublishedModel deepseek(std::string_view name, std::vector<std::string_view> sizes, int64_t published) {
  sizes.insert(sizes.begin(), {"model.kind=deepseek", "model.key_rank=512", "model.head_size=128",
                               "model.rotary_size=64", "model.value_size=128", "data.seq=4096"});
  return {name, std::move(sizes), published, false, kDeepSeek};
}

PublishedModel bert(std::string_view name, std::string_view layers, std::string_view width, std::string_view heads,
                    int64_t published) {
  return {name,
          {"model.kind=bert", layers, width, heads, "model.mlp_width=0", "model.vocabulary=30522", "data.seq=512"},
          published,
          false,
          kBert};
}

// As many tokens to read as to write.
PublishedModel t5(std::string_view name, std::vector<std::string_view> sizes, int64_t published) {
  sizes.insert(sizes.begin(),
               {"model.kind=t5", "model.gated=false", "model.tied=true", "model.vocabulary=32128", "data.seq=512"});
  return {name, std::move(sizes), published, false, kT5};
}

PublishedModel resnet(std::string_view name, std::string_view depth, std::string_view inner_factor, int64_t published) {
  return {name,
          {"model.kind=resnet", depth, inner_factor, "model.classes=1000", "data.image=[224,224,3]"},
          published,
          false,
          inner_factor.ends_with('1') ? kResNet : kWide};
}

PublishedModel vit(std::string_view name, std::string_view layers, std::string_view width, std::string_view heads,
                   std::string_view patch, int64_t published) {
  return {name,
          {"model.kind=vit", layers, width, heads, patch, "model.mlp_width=0", "model.classes=1000",
           "data.image=[224,224,3]"},
          published,
          false,
          kVit};
}

// That tell the next token.
std::vector<PublishedModel> language_models() {
  return {gpt2("gpt2", "model.layers=12", "model.width=768", "model.heads=12", 124'439'808),
          gpt2("gpt2-medium", "model.layers=24", "model.width=1024", "model.heads=16", 354'823'168),
          gpt2("gpt2-large", "model.layers=36", "model.width=1280", "model.heads=20", 774'030'080),
          gpt2("gpt2-xl", "model.layers=48", "model.width=1600", "model.heads=25", 1'557'611'200),
          gpt3("gpt3-125m", "model.layers=12", "model.width=768", "model.heads=12", 125'000'000),
          gpt3("gpt3-350m", "model.layers=24", "model.width=1024", "model.heads=16", 350'000'000),
          gpt3("gpt3-760m", "model.layers=24", "model.width=1536", "model.heads=16", 760'000'000),
          gpt3("gpt3-1.3b", "model.layers=24", "model.width=2048", "model.heads=16", 1'300'000'000),
          gpt3("gpt3-2.7b", "model.layers=32", "model.width=2560", "model.heads=32", 2'700'000'000),
          gpt3("gpt3-6.7b", "model.layers=32", "model.width=4096", "model.heads=32", 6'700'000'000),
          gpt3("gpt3-13b", "model.layers=40", "model.width=5120", "model.heads=40", 13'000'000'000),
          gpt3("gpt3-175b", "model.layers=96", "model.width=12288", "model.heads=96", 175'000'000'000),
          llama2("llama2-7b", "model.layers=32", "model.width=4096", "model.heads=32", "model.kv_heads=32",
                 "model.mlp_width=11008", 6'738'415'616),
          llama2("llama2-13b", "model.layers=40", "model.width=5120", "model.heads=40", "model.kv_heads=40",
                 "model.mlp_width=13824", 13'015'864'320),
          llama2("llama2-70b", "model.layers=80", "model.width=8192", "model.heads=64", "model.kv_heads=8",
                 "model.mlp_width=28672", 68'976'648'192),
          llama3("llama3-1b", "model.layers=16", "model.width=2048", "model.heads=32", "model.mlp_width=8192",
                 "model.tied=true", 1'235'814'400),
          llama3("llama3-3b", "model.layers=28", "model.width=3072", "model.heads=24", "model.mlp_width=8192",
                 "model.tied=true", 3'212'749'824),
          llama3("llama3-8b", "model.layers=32", "model.width=4096", "model.heads=32", "model.mlp_width=14336",
                 "model.tied=false", 8'030'261'248),
          llama3("llama3-70b", "model.layers=80", "model.width=8192", "model.heads=64", "model.mlp_width=28672",
                 "model.tied=false", 70'553'706'496),
          llama3("llama3-405b", "model.layers=126", "model.width=16384", "model.heads=128", "model.mlp_width=53248",
                 "model.tied=false", 405'853'388'800),
          mixtral("mixtral-8x7b", "model.layers=32", "model.width=4096", "model.heads=32", "model.mlp_width=14336",
                  "model.vocabulary=32000", 46'702'792'704),
          mixtral("mixtral-8x22b", "model.layers=56", "model.width=6144", "model.heads=48", "model.mlp_width=16384",
                  "model.vocabulary=32768", 140'630'071'296),
          deepseek("deepseek-v2-lite",
                   {"model.layers=27", "model.width=2048", "model.heads=16", "model.query_rank=0",
                    "model.mlp_width=10944", "model.dense_layers=1", "model.experts=64", "model.shared_experts=2",
                    "model.expert_width=1408", "model.top_k=6", "model.expert_scores=softmax",
                    "model.normalised_gates=false", "model.bias_rate=0", "model.vocabulary=102400"},
                   15'706'484'224),
          deepseek("deepseek-v3",
                   {"model.layers=61", "model.width=7168", "model.heads=128", "model.query_rank=1536",
                    "model.mlp_width=18432", "model.dense_layers=3", "model.experts=256", "model.shared_experts=1",
                    "model.expert_width=2048", "model.top_k=8", "model.expert_nodes=8", "model.top_nodes=4",
                    "model.gate_scale=2.5", "model.vocabulary=129280"},
                   671'026'404'352)};
}

// Encoders, what reads them, and those of images.
std::vector<PublishedModel> other_models() {
  return {
      bert("bert-base", "model.layers=12", "model.width=768", "model.heads=12", 109'514'298),
      bert("bert-large", "model.layers=24", "model.width=1024", "model.heads=16", 335'174'458),
      t5("t5-small",
         {"model.layers=6", "model.width=512", "model.heads=8", "model.head_size=64", "model.mlp_width=2048"},
         60'506'624),
      t5("t5-base",
         {"model.layers=12", "model.width=768", "model.heads=12", "model.head_size=64", "model.mlp_width=3072"},
         222'903'552),
      t5("t5-large",
         {"model.layers=24", "model.width=1024", "model.heads=16", "model.head_size=64", "model.mlp_width=4096"},
         737'668'096),
      t5("t5-3b",
         {"model.layers=24", "model.width=1024", "model.heads=32", "model.head_size=128", "model.mlp_width=16384"},
         2'851'598'336),
      t5("t5-11b",
         {"model.layers=24", "model.width=1024", "model.heads=128", "model.head_size=128", "model.mlp_width=65536"},
         11'307'321'344),
      resnet("resnet50", "model.depth=50", "model.inner_factor=1", 25'557'032),
      resnet("resnet101", "model.depth=101", "model.inner_factor=1", 44'549'160),
      resnet("resnet152", "model.depth=152", "model.inner_factor=1", 60'192'808),
      resnet("wide-resnet50", "model.depth=50", "model.inner_factor=2", 68'883'240),
      resnet("wide-resnet101", "model.depth=101", "model.inner_factor=2", 126'886'696),
      vit("vit-b16", "model.layers=12", "model.width=768", "model.heads=12", "model.patch=16", 86'567'656),
      vit("vit-l16", "model.layers=24", "model.width=1024", "model.heads=16", "model.patch=16", 304'326'632),
      vit("vit-h14", "model.layers=32", "model.width=1280", "model.heads=16", "model.patch=14", 632'045'800),
  };
}

const std::vector<PublishedModel>& all_models() {
  static const std::vector<PublishedModel> models = [] {
    std::vector<PublishedModel> out = language_models();
    for (PublishedModel& model : other_models()) out.push_back(std::move(model));
    return out;
  }();
  return models;
}

}  // namespace

std::span<const PublishedModel> published_models() {
  return all_models();
}

const PublishedModel* find_published_model(std::string_view name) {
  const auto found = std::ranges::find(all_models(), name, &PublishedModel::name);
  return found == all_models().end() ? nullptr : &*found;
}

void set_published_model(JobConfig& config, std::string_view name) {
  const PublishedModel* model = find_published_model(name);
  std::vector<std::string> names;
  for (const PublishedModel& each : all_models()) names.emplace_back(each.name);
  require(model != nullptr, "there is no model '{}'.{} `trireme models` lists them", name, suggestion(name, names));
  std::vector<std::string> keys{"data.kind=synthetic"};
  keys.insert(keys.end(), model->keys.begin(), model->keys.end());
  std::ranges::stable_partition(keys, [](const std::string& key) { return key.starts_with("model.kind="); });
  set_keys(config, keys);
  config.name = name;
}

ModelCounts count(const JobConfig& config) {
  const std::unique_ptr<nn::Module> model = make_model(config);
  const std::vector<BatchField> batch = batch_of(config, 1);
  ModelCounts out;
  if (!predicts_classes(config)) out.positions = batch.front().type.elements();
  const Graph graph = inference([&](const nn::Fields& fields) { return (*model)(fields); }, batch);
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) out.parameters += graph.type(input.value).elements();
  }
  for (const Node& node : graph.nodes()) {
    std::vector<TensorType> in, types;
    for (const ValueId id : node.inputs) in.push_back(graph.type(id));
    for (const ValueId id : node.outputs) types.push_back(graph.type(id));
    if (def_of(node).cost) out.forward_flops += def_of(node).cost.get()({in, types, node.attrs}).flops;
  }
  return out;
}

}  // namespace trireme

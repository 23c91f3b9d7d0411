#include "trireme/train/job/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/nn/models/llama.h"
#include "trireme/tensor/host_tensor.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"

namespace trireme::config_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kText =
    "name = \"tiny\"\n"
    "[model]\n"
    "kind = \"gpt\"\n"
    "layers = 2\n"
    "[data]\n"
    "kind = \"synthetic\"\n"
    "[train]\n"
    "steps = 10\n"
    "lr = 1\n";

// Of images, which have no layers.
constexpr const char* kImages = "[model]\nkind = \"mlp\"\n[data]\nkind = \"synthetic\"\n[train]\nsteps = 10\n";

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(text, "job.toml", overrides);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    return e.what();
  }
  return "";
}

std::string with(const std::string& line) {
  return kText + line + "\n";
}

TEST(Config, values_are_read_and_the_rest_keeps_its_defaults) {
  const JobConfig config = parse_config(kText, "job.toml");
  EXPECT_EQ(config.name, "tiny");
  EXPECT_THAT(to_toml(config), HasSubstr("kind = 'gpt'\nlayers = 2\n"));
  EXPECT_EQ(config.train.lr, 1.0) << "a whole number is a number";
  EXPECT_EQ(config.train.fit.batch, JobConfig{}.train.fit.batch);
}

TEST(Config, overrides_come_after_the_file) {
  const JobConfig config = parse_config(
      kImages, "job.toml", {"train.lr=0.5", "name=other", "model.hidden=[1,2]", "train.optimizer=\"sgd\""});
  EXPECT_EQ(config.train.lr, 0.5);
  EXPECT_EQ(config.name, "other");
  EXPECT_THAT(to_toml(config), HasSubstr("hidden = [ 1, 2 ]\n"));
  EXPECT_EQ(config.train.optimizer, "sgd");
}

TEST(Config, what_it_writes_reads_back_the_same) {
  JobConfig config = parse_config(kImages, "job.toml");
  config.name = "with \"quotes\" and \\";
  config.parallel.zero.except = {"a b", "c"};
  config.train.lr = 0.1 + 0.2;
  set_keys(config, {"model.hidden=[]", "train.weight_decay=1e-30"});
  const std::string text = to_toml(config);
  JobConfig read = parse_config(text, "again.toml");
  EXPECT_EQ(to_toml(read), text);
  EXPECT_EQ(read.name, config.name);
  EXPECT_EQ(read.train.lr, config.train.lr);
  EXPECT_THAT(text, HasSubstr("weight_decay = 1e-30\n"));
  EXPECT_THAT(read.parallel.zero.except, ElementsAre("a b", "c"));
  EXPECT_THAT(text, HasSubstr("hidden = []\n"));
}

// What the fuzzer of tests/fuzz found: toml++ has no double for whole numbers from 2^53 on.
TEST(Config, a_whole_number_of_any_size_is_a_number) {
  EXPECT_EQ(parse_config(kText, "job.toml", {"train.clip=9007199254740993"}).train.step.clip_norm, 9007199254740992.0);
}

TEST(Config, every_key_is_written) {
  JobConfig config;
  const std::string text = to_toml(config);
  for (const ConfigKey& key : config_keys(config)) {
    EXPECT_THAT(text, HasSubstr(key.name.substr(key.name.find('.') + 1) + " = ")) << key.name;
  }
}

// What rows say of other keys, and of flags, is so.
TEST(ConfigKeys, each_row_allows_its_default_and_names_keys_that_there_are) {
  JobConfig config;
  const std::vector<ConfigKey> keys = config_keys(config);
  const auto has = [&](const std::string& name) { return std::ranges::count(keys, name, &ConfigKey::name) == 1; };
  std::map<std::string_view, std::string> of_flag;
  for (const ConfigKey& key : keys) {
    EXPECT_TRUE(has(key.name)) << key.name << " is there twice";
    if (key.row.check != nullptr) {
      EXPECT_NO_THROW(key.row.check(key.name, key.target)) << key.name;
    }
    const std::string beside(key.row.no_effect_with), implied(key.row.implies);
    if (!beside.empty()) {
      EXPECT_TRUE(has(std::string(key.section()) + beside.substr(0, beside.find(" = ")))) << key.name << ": " << beside;
    }
    if (!implied.empty()) {
      EXPECT_TRUE(has(std::string(key.section()) + implied.substr(0, implied.find('='))))
          << key.name << ": " << implied;
    }
    if (key.row.flag.empty()) continue;
    EXPECT_TRUE(key.row.flag.starts_with("--")) << key.name;
    EXPECT_TRUE(of_flag.emplace(key.row.flag, key.name).second) << key.row.flag << " is of two keys";
  }
  EXPECT_GT(of_flag.size(), 25U);
}

TEST(ConfigKeys, names_and_numbers_of_a_type_are_read_into_it) {
  const JobConfig config = parse_config(
      kText, "job.toml", {"train.schedule=\"linear\"", "train.numerics=invariant", "train.seed=9223372036854775807"});
  EXPECT_EQ(config.train.schedule.kind, Schedule::Kind::kLinear);
  EXPECT_EQ(config.train.step.numerics, Numerics::kInvariant);
  EXPECT_EQ(config.train.step.seed, 9223372036854775807U);
  EXPECT_THAT(to_toml(config), HasSubstr("numerics = 'invariant'\n"));
  EXPECT_EQ(error_of(kText, {"train.seed=-1"}), "configuration: train.seed = -1; it must be 0 or more");
  EXPECT_EQ(error_of(kText, {"train.schedule=\"linar\""}),
            "configuration: train.schedule = 'linar'; it must be one of 'constant', 'linear' or 'cosine'. Did you mean "
            "'linear'?");
  EXPECT_EQ(error_of(with("seed = 1.5")), "job.toml:10: 'train.seed' must be a whole number; found 1.5");
  EXPECT_EQ(error_of(with("numerics = 1")), "job.toml:10: 'train.numerics' must be a string; found 1");
}

TEST(Config, a_llama_is_described_by_the_keys_of_its_own) {
  const std::string text =
      std::string("[model]\nkind = \"llama\"\n") + "[data]\nkind = \"synthetic\"\n[train]\nsteps = 1\n";
  const std::vector<std::string> sizes{"model.layers=1", "model.width=16", "model.heads=4"};
  const auto with_key = [&](const std::string& key) {
    std::vector<std::string> all = sizes;
    all.push_back(key);
    return all;
  };
  JobConfig config = parse_config(text, "job.toml", with_key("model.kv_heads=2"));
  set_keys(config, {"model.mlp_width=40", "model.rope_theta=500"});
  const auto model = make_model(config);
  const auto& llama = dynamic_cast<const nn::Llama&>(*model);
  EXPECT_EQ(llama.config().kv_heads, 2);
  EXPECT_EQ(llama.config().hidden, 40);
  EXPECT_EQ(llama.config().rope_theta, 500);
  EXPECT_FALSE(predicts_classes(config));
  EXPECT_THAT(error_of(text, with_key("model.kv_heads=3")),
              HasSubstr("model.heads = 4 is not divisible by model.kv_heads = 3"));
  EXPECT_THAT(error_of(text, with_key("model.width=12")), HasSubstr("a head size of 3; llama needs an even one"));
  EXPECT_THAT(error_of(text, with_key("model.rope_theta=0")), HasSubstr("model.rope_theta = 0; it must be above 0"));
  EXPECT_THAT(error_of(text, with_key("model.mlp_width=-1")), HasSubstr("model.mlp_width = -1; it must be 0 or more"));
}

TEST(Config, a_resnet_is_described_by_the_keys_of_its_own) {
  const std::vector<std::string> resnet{"model.kind=\"resnet\"", "data.image=[32,32,3]"};
  const auto with_key = [&](const std::string& key) {
    std::vector<std::string> out = resnet;
    out.push_back(key);
    return out;
  };
  const JobConfig config = parse_config(kImages, "job.toml", with_key("model.blocks=[1,2]"));
  EXPECT_EQ(to_string(batch_of(config, 4)[0].type), "f32[4,32,32,3]");
  EXPECT_THAT(error_of(kImages, with_key("model.depth=34")), HasSubstr("model.depth = 34; it must be 50, 101 or 152"));
  EXPECT_THAT(error_of(kImages, with_key("model.blocks=[1,0]")), HasSubstr("model.blocks = 0; it must be 1 or more"));
  EXPECT_THAT(error_of(kImages, with_key("data.image=[32,32]")),
              HasSubstr("data.image has 2 sizes; they are height, width and channels"));
  EXPECT_THAT(error_of(kImages, with_key("train.label_smoothing=1.0")),
              HasSubstr("train.label_smoothing = 1; it must be from 0 to below 1"));
}

TEST(Config, a_key_that_is_none_is_refused_with_its_line_and_the_likely_one) {
  EXPECT_EQ(error_of(with("btach = 8")), "job.toml:10: no key 'train.btach'. Did you mean 'train.batch'?");
  EXPECT_THAT(error_of(with("[nonsense]\nxyzzyxyzzyxyzzy = 1")),
              HasSubstr("job.toml:11: no key 'nonsense.xyzzyxyzzyxyzzy'. `trireme help config` lists the keys."));
}

TEST(Config, a_value_of_another_type_is_refused_with_both) {
  EXPECT_EQ(error_of(with("batch = \"8\"")), "job.toml:10: 'train.batch' must be a whole number; found the string '8'");
  EXPECT_EQ(error_of(with("batch = 8.5")), "job.toml:10: 'train.batch' must be a whole number; found 8.5");
  EXPECT_EQ(error_of(with("clip = true")), "job.toml:10: 'train.clip' must be a number; found true");
  EXPECT_EQ(error_of(with("optimizer = 3")), "job.toml:10: 'train.optimizer' must be a string; found 3");
  EXPECT_EQ(error_of(with("[parallel]\nmode = []")), "job.toml:11: 'parallel.mode' must be a string; found a list");
}

TEST(Config, text_that_is_no_toml_is_refused_with_its_place) {
  EXPECT_THAT(error_of("name = \n"), HasSubstr("job.toml:1:"));
  EXPECT_THAT(error_of(with("seed = 1\nseed = 2")), HasSubstr("job.toml:11:"));
  EXPECT_EQ(error_of("name = 'h\xc3\xb6he'\nh\xc3\xb6he = 1"),
            "job.toml:2:2: a character that is not ASCII must stand in quotes or a comment");
}

TEST(Config, a_byte_order_mark_before_the_text_is_passed_over) {
  EXPECT_EQ(parse_config(std::string("\xef\xbb\xbf") + kText, "job.toml").name, parse_config(kText, "job.toml").name);
  EXPECT_THAT(error_of("\xef\xbb\xbfname = \n"), HasSubstr("job.toml:1:"));
}

TEST(Config, overrides_that_cannot_be_are_refused) {
  EXPECT_EQ(error_of(kText, {"train.lr"}), "--set 'train.lr': it must be key=value, like train.lr=0.001");
  EXPECT_EQ(error_of(kText, {"train.lt=1"}), "--set: no key 'train.lt'. Did you mean 'train.lr'?");
  EXPECT_EQ(error_of(kText, {"train.lr=fast"}), "--set: 'train.lr' must be a number; found 'fast'");
  EXPECT_EQ(error_of(kText, {"train.batch=1.5"}), "--set: 'train.batch' must be a whole number; found '1.5'");
  // Text of a checkpoint, which JSON must be able to hold.
  EXPECT_EQ(error_of(kText, {"name=a\xff"}), "--set name: the value is not UTF-8 text");
}

TEST(Config, values_out_of_range_are_refused_with_what_would_be_right) {
  EXPECT_THAT(error_of(kText, {"train.optimizer=adamm"}),
              testing::AllOf(HasSubstr("configuration: train.optimizer = 'adamm'; it must be one of 'sgd', 'adam', "),
                             HasSubstr(". Did you mean 'adam'?")));
  EXPECT_THAT(error_of(kText, {"train.batch=0"}), HasSubstr("train.batch = 0; it must be 1 or more"));
  EXPECT_THAT(error_of(kText, {"train.lr=0.0"}), HasSubstr("train.lr = 0; it must be above 0"));
  EXPECT_THAT(error_of(kText, {"train.steps=0"}), HasSubstr("neither train.steps nor train.epochs is set"));
  EXPECT_THAT(error_of(kText, {"data.validation=1.0"}), HasSubstr("data.validation = 1; it is the share of samples"));
  EXPECT_THAT(error_of(kText, {"data.kind=text"}), HasSubstr("data.paths is empty"));
  EXPECT_THAT(error_of(kImages, {"data.kind=text"}),
              HasSubstr("data.kind 'text' needs model.kind 'gpt', 'llama' or 'deepseek'"));
  EXPECT_THAT(
      error_of(kText, {"data.kind=text", "model.kind=bert", "model.vocabulary=257"}),
      HasSubstr("data.kind 'text' hides no tokens, and model.kind 'bert' tells hidden ones; use model.kind 'gpt', "
                "'llama' or 'deepseek', or data.kind 'masked_text'"));
  EXPECT_THAT(error_of(kText, {"data.kind=masked_text", "model.vocabulary=257"}),
              HasSubstr("data.kind 'masked_text' hides tokens, and model.kind 'gpt' tells the next one; use model.kind "
                        "'bert', or data.kind 'text'"));
  EXPECT_THAT(error_of(kText, {"data.kind=idx"}), HasSubstr("needs model.kind 'mlp', 'lenet', "));
  EXPECT_THAT(error_of(kImages, {"data.kind=idx"}), HasSubstr("data.images and data.labels"));
  EXPECT_THAT(error_of(kText, {"data.kind=text", "model.kind=t5"}), HasSubstr("; data.kind 'corrupted_text' has them"));
}

TEST(Config, the_optimizer_gets_its_options) {
  const JobConfig config = parse_config(kText, "job.toml", {"train.optimizer=sgd", "train.momentum=0.5"});
  const Optimizer optimizer = make_optimizer(config);
  EXPECT_EQ(nn::describe(optimizer.spec()), "SGD, momentum 0.5, weight decay 0.01");
  EXPECT_EQ(learning_rate(optimizer), 1.0);
}

TEST(Config, the_numbers_of_an_optimizer_are_keys_where_they_have_an_effect) {
  const auto described = [](const std::vector<std::string>& keys) {
    return nn::describe(make_optimizer(parse_config(kText, "job.toml", keys)).spec());
  };
  EXPECT_EQ(described({"train.eps=0.5"}), "AdamW, beta1 0.9, beta2 0.999, eps 0.5, weight decay 0.01");
  EXPECT_EQ(described({"train.optimizer=lazy_adam"}), "LazyAdam, beta1 0.9, beta2 0.999, eps 1e-08");
  EXPECT_EQ(described({"train.optimizer=lamb"}), "LAMB, beta1 0.9, beta2 0.999, eps 1e-06, weight decay 0.01");
  EXPECT_EQ(described({"train.optimizer=sgd", "train.nesterov=true"}),
            "SGD, momentum 0.9, nesterov, weight decay 0.01");
  EXPECT_EQ(described({"train.optimizer=adam"}), "Adam, beta1 0.9, beta2 0.999, eps 1e-08, weight decay 0.01");
  EXPECT_EQ(error_of(kText, {"train.optimizer=sgd", "train.eps=0.5"}),
            "configuration: train.eps = 0.5 has no effect with train.optimizer = 'sgd'; leave it out, or at its "
            "default of 1e-08");
  EXPECT_EQ(error_of(kText, {"train.nesterov=true"}),
            "configuration: train.nesterov = true has no effect with train.optimizer = 'adamw'; leave it out, or at "
            "its default of false");
  EXPECT_EQ(error_of(kText, {"train.optimizer=sgd", "train.nesterov=true", "train.momentum=0"}),
            "configuration: train.nesterov = true needs a momentum above 0; it is 0");
  EXPECT_EQ(error_of(kText, {"train.eps=-1"}), "configuration: train.eps = -1; it must be 0 or more");
}

TEST(Config, an_optimizer_has_the_same_numbers_when_the_text_is_read_again) {
  for (const std::string& kind : nn::optimizer_kinds()) {
    JobConfig config = parse_config(kText, "job.toml", {"train.optimizer=" + kind});
    const std::string text = to_toml(config);
    EXPECT_EQ(to_toml(parse_config(text, "again.toml")), text);
    for (const ConfigKey& key : optimizer_keys(config))
      EXPECT_THAT(text, HasSubstr(key.name.substr(6) + " = ")) << kind << " " << key.name;
  }
}

// The text in a checkpoint of an earlier version has the numbers of every optimizer.
TEST(Config, numbers_of_other_optimizers_may_stand_at_their_defaults) {
  EXPECT_EQ(error_of(kText, {"train.optimizer=sgd", "train.beta1=0.9", "train.beta2=0.999", "train.eps=1e-06"}), "");
}

TEST(Config, images_are_normalised_by_the_keys_that_say_how) {
  const TempDirectory dir;
  atomic_write(dir / "images", std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02", 16) + std::string(4, '\x33'));
  atomic_write(dir / "labels", std::string("\0\0\x08\x01\0\0\0\x02", 8) + std::string(2, '\x01'));
  const auto pixel = [&](const std::vector<std::string>& keys) {
    std::vector<std::string> all{"model.kind=\"mlp\"",
                                 "data.kind=\"idx\"",
                                 "data.image=[1,2,1]",
                                 "data.validation=0",
                                 fmt::format("data.images=\"{}\"", dir / "images"),
                                 fmt::format("data.labels=\"{}\"", dir / "labels")};
    all.insert(all.end(), keys.begin(), keys.end());
    const data::SourcePtr source = make_data(parse_config(kImages, "job.toml", all)).train;
    const HostTensor image(source->fields()[0].sample);
    source->read(0, std::vector<View>{image.view(), {nullptr, source->fields()[1].sample}});
    return image.as<float>()[1];
  };
  EXPECT_EQ(pixel({}), (0x33 / 255.0F - 0.1307F) / 0.3081F);
  EXPECT_EQ(pixel({"data.mean=0.5", "data.std=0.25"}), (0x33 / 255.0F - 0.5F) / 0.25F);
  EXPECT_EQ(pixel({"data.mean=0", "data.std=1"}), 0x33 / 255.0F);
}

TEST(Config, factors_of_a_mixture_that_cannot_be_are_refused) {
  for (const char* value : {"0", "0.0", "-1", "nan", "-inf"}) {
    EXPECT_THAT(error_of(kText, {fmt::format("model.capacity_factor={}", value)}), HasSubstr("it must be above 0"))
        << value;
  }
  EXPECT_EQ(error_of(kText, {"model.experts=2", "model.capacity_factor=inf"}), "");
  EXPECT_EQ(error_of(kText, {"model.experts=2", "model.capacity_factor=1e18"}), "");
  EXPECT_THAT(error_of(kText, {"model.experts=2", "model.aux_loss_factor=-0.5"}),
              HasSubstr("model.aux_loss_factor = -0.5; it must be 0 or more"));
  EXPECT_THAT(error_of(kText, {"model.experts=2", "model.aux_loss_factor=nan"}),
              HasSubstr("model.aux_loss_factor = nan; it must be 0 or more"));
  EXPECT_THAT(error_of(kText, {"model.top_k=0"}), HasSubstr("model.top_k = 0; it must be 1 or more"));
  EXPECT_THAT(error_of(kText, {"model.experts=1"}),
              HasSubstr("model.top_k = 2 of model.experts = 1; use more experts, or a smaller top_k"));
}

std::string refusal(const std::string& toml) {
  try {
    parse_config(toml, "job.toml");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    return e.text();
  }
  return "";
}

constexpr const char* kGpt = "[data]\nkind = 'synthetic'\n[train]\nsteps = 1\n";
constexpr const char* kMlp = "[data]\nkind = 'synthetic'\n[model]\nkind = 'mlp'\n[train]\nsteps = 1\n";

TEST(ConfigEffects, a_key_that_changes_nothing_beside_the_others_is_refused_with_the_reason) {
  const auto expect = [](const std::string& base, const std::string& more, const std::string& text) {
    EXPECT_EQ(refusal(base + more), "configuration: " + text) << more;
  };
  expect(kGpt, "[model]\ntied = true\n",
         "model.tied = true has no effect with model.kind = 'gpt', whose keys are layers, width, heads, vocabulary, "
         "experts, top_k, capacity_factor, aux_loss_factor, expert_groups, dropout; leave it out, or at its default of "
         "false");
  expect(
      kGpt, "[model]\nkind = 'llama'\ndropout = 0.1\n",
      "model.dropout = 0.1 has no effect with model.kind = 'llama', whose keys are layers, width, heads, kv_heads, "
      "mlp_width, rope_theta, tied, vocabulary, experts, top_k, capacity_factor, aux_loss_factor, expert_groups; leave "
      "it out, or at its default of 0.0");
  expect(kGpt, "[model]\ntop_k = 1\n",
         "model.top_k = 1 has no effect with model.experts = 0; leave it out, or at its default of 2");
  expect(kGpt, "momentum = 0.5\n",
         "train.momentum = 0.5 has no effect with train.optimizer = 'adamw'; leave it out, or at its default of 0.9");
  expect(kGpt, "optimizer = 'sgd'\nbeta1 = 0.5\n",
         "train.beta1 = 0.5 has no effect with train.optimizer = 'sgd'; leave it out, or at its default of 0.9");
  expect(
      kMlp, "schedule = 'constant'\nfinal_ratio = 0.5\n",
      "train.final_ratio = 0.5 has no effect with train.schedule = 'constant'; leave it out, or at its default of 0.1");
  EXPECT_THAT(
      refusal("[data]\nkind = 'synthetic'\nsamples = 9\nmean = 0.5\n[model]\nkind = 'mlp'\n[train]\nsteps = 1\n"),
      HasSubstr("data.mean = 0.5 has no effect with data.kind = 'synthetic'"));
}

// The configuration in a checkpoint of an earlier version has the keys of every kind; a job may change its kind by a
// flag.
TEST(ConfigKinds, keys_of_other_kinds_may_stand_at_the_default_that_any_of_them_has) {
  EXPECT_EQ(refusal(std::string(kGpt) + "[model]\ntied = false\nhidden = [64, 32]\ndepth = 50\n"), "");
  EXPECT_THAT(error_of(std::string(kGpt) + "[model]\ntied = 3\n"), HasSubstr("'model.tied' must be true or false"));
  const JobConfig config =
      parse_config(std::string(kGpt) + "[model]\ndropout = 0.0\n", "job.toml", {"model.kind=llama"});
  EXPECT_EQ(config.model.spec->kind(), "llama");
}

TEST(ConfigKinds, a_kind_has_the_same_keys_and_values_when_its_text_is_read_again) {
  for (const std::string& kind : nn::model_kinds()) {
    JobConfig config =
        parse_config("[data]\nkind = 'synthetic'\n[train]\nsteps = 1\n", "job.toml", {"model.kind=" + kind});
    const std::string text = to_toml(config);
    EXPECT_EQ(to_toml(parse_config(text, "again.toml")), text);
    EXPECT_THAT(text, HasSubstr("kind = '" + kind + "'"));
    JobConfig usual = with_kinds_of(config);
    for (const ConfigKey& key : keys_of_kinds(usual)) {
      const size_t point = key.name.find('.');
      EXPECT_THAT(text, HasSubstr(key.name.substr(point + 1) + " = ")) << kind << " " << key.name;
    }
  }
}

TEST(ConfigKinds, a_copy_of_a_configuration_has_values_of_its_own) {
  JobConfig config = parse_config(kGpt, "job.toml");
  JobConfig copy = config;
  set_keys(copy, {"model.layers=7"});
  EXPECT_THAT(to_toml(copy), HasSubstr("layers = 7"));
  EXPECT_THAT(to_toml(config), HasSubstr("layers = 4"));
  config = copy;
  EXPECT_THAT(to_toml(config), HasSubstr("layers = 7"));
}

TEST(ConfigKinds, a_table_reaches_a_model_with_its_fields_in_the_models_order) {
  const TempDirectory dir;
  const std::string path = dir / "t.csv";
  atomic_write(path, "age,region,device,hours,bought\n30,0,5,1.5,1\n40,1,6,2.5,0\n");
  const auto job = [&](const std::string& fields) {
    return fmt::format(
        "[model]\nkind = 'wide_deep'\nvocabulary = 7\n[data]\nkind = 'csv'\npath = '{}'\nfields = {}\nvalidation = 0\n"
        "[train]\nsteps = 1\nbatch = 2\n",
        path, fields);
  };
  const JobConfig config =
      parse_config(job("['label i32 = bought', 'ids i32 = [region, device]', 'dense = [age, hours]']"), "job.toml");
  EXPECT_EQ(to_string(fields_of(config)), "dense f32[2], ids i32[2], label i32[]");
  const data::SourcePtr source = make_data(config).train;
  const HostTensor dense(source->fields()[0].sample), ids(source->fields()[1].sample),
      label(source->fields()[2].sample);
  source->read(1, std::vector<View>{dense.view(), ids.view(), label.view()});
  EXPECT_THAT(dense.as<float>(), ElementsAre(40, 2.5F));
  EXPECT_THAT(ids.as<int32_t>(), ElementsAre(1, 6));
  EXPECT_THAT(label.as<int32_t>(), ElementsAre(0));

  EXPECT_THAT(
      refusal(job("['dense = [age, hours]', 'label i32 = bought']")),
      testing::AllOf(
          HasSubstr("data.kind 'csv' needs model.kind 'mlp'"),
          HasSubstr(", not 'wide_deep': the data have dense f32[2], label i32[], and the model takes dense f32[?], "
                    "ids i32[?], label i32[]")));
  EXPECT_THAT(
      refusal(job("['dense = [age, hours]', 'ids = [region]', 'label i32 = bought']")),
      HasSubstr("data.kind 'csv' does not go with model.kind 'wide_deep': the data have dense f32[2], ids f32[1]"));
  EXPECT_THAT(refusal(job("[]")), HasSubstr("data.fields is empty; say which columns are which field"));
  EXPECT_THAT(refusal(job("['dense']")), HasSubstr("data.fields: 'dense' has no '='; it must be a name, f32 or i32"));
  EXPECT_THAT(refusal(job("['dense f16 = age']")), HasSubstr("'dense f16 = age' has the type 'f16'"));
  EXPECT_THAT(refusal(job("['dense = age, hours']")), HasSubstr("names several columns without '[' and ']'"));
  EXPECT_THAT(refusal(job("['a = age', 'a = hours']")), HasSubstr("data.fields has two fields named 'a'"));
  const JobConfig narrow =
      parse_config(job("['dense = [age, hours]', 'ids i32 = [region, device]', 'label i32 = bought']"), "job.toml",
                   {"model.vocabulary=6"});
  try {
    make_data(narrow);
    FAIL() << "an id that the model does not have";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("line 3: 6 in column 'device' is out of range: the model takes field 'ids' from 0 to 5"));
    EXPECT_THAT(e.what(), HasSubstr("while reading data.path of the configuration"));
  }
}

TEST(ConfigEffects, what_is_asked_of_the_ranks_without_effect_is_said) {
  EXPECT_THAT(
      remarks(parse_config(std::string(kGpt) + "[parallel]\nzero_threshold_kb = 1\nsp = true\n", "job.toml"), 2),
      ElementsAre("parallel.sp = true has no effect with parallel.tp = 1; leave it out, or at its default of false",
                  "parallel.zero_threshold_kb = 1 has no effect with parallel.zero = 0; leave it out, or at its "
                  "default of 64"));
  EXPECT_THAT(remarks(parse_config(std::string(kGpt) + "[parallel]\nzero_threshold_kb = 1\nzero = 1\n", "job.toml"), 2),
              testing::IsEmpty());
}

TEST(ConfigEffects, a_key_at_its_default_asks_for_nothing) {
  EXPECT_EQ(refusal(std::string(kGpt) +
                    "momentum = 0.9\n[model]\ntied = false\nhidden = [512, 512]\n[parallel]\nsp = false\n"),
            "");
}

TEST(ConfigNames, what_other_systems_call_a_key_and_a_key_of_another_section_are_suggested) {
  const auto suggested = [](const std::string& line) { return refusal(std::string(kGpt) + line); };
  EXPECT_THAT(suggested("learning_rate = 0.1\n"), HasSubstr("no key 'train.learning_rate'. Did you mean 'train.lr'?"));
  EXPECT_THAT(suggested("[model]\nn_layer = 2\n"), HasSubstr("no key 'model.n_layer'. Did you mean 'model.layers'?"));
  EXPECT_THAT(suggested("[model]\nlr = 2\n"), HasSubstr("no key 'model.lr'. Did you mean 'train.lr'?"));
  EXPECT_THAT(refusal("lr = 1\n" + std::string(kGpt)), HasSubstr("no key 'lr'. Did you mean 'train.lr'?"));
  EXPECT_THAT(suggested("bacth = 2\n"), HasSubstr("no key 'train.bacth'. Did you mean 'train.batch'?"));
}

TEST(ConfigNames, each_other_name_is_of_a_key_that_there_is) {
  JobConfig config;
  const OtherKinds others(config);
  std::vector<ConfigKey> keys = config_keys(config);
  keys.insert(keys.end(), others.keys().begin(), others.keys().end());
  for (const auto& [name, key] : other_names_of_keys()) {
    EXPECT_TRUE(std::ranges::any_of(keys, [&](const ConfigKey& each) { return each.name == key; }))
        << name << " " << key;
    EXPECT_EQ(meant_by(fmt::format("model.{}", name), keys), key);
  }
}

TEST(ConfigValues, an_extension_begins_with_a_dot) {
  EXPECT_THAT(refusal("[data]\npaths = ['.']\nextensions = ['.md', 'txt']\n[train]\nsteps = 1\n"),
              HasSubstr("data.extensions has 'txt'; an extension begins with a dot, as in '.txt'"));
}

TEST(Config, the_aux_loss_factor_reaches_every_mixture) {
  for (const char* kind : {"gpt", "llama"}) {
    const auto losses = [&](const char* factor) {
      const JobConfig config = parse_config(
          kText, "job.toml",
          {fmt::format("model.kind={}", kind), "model.experts=2", fmt::format("model.aux_loss_factor={}", factor)});
      Graph graph;
      nn::Trace trace(graph, {.training = true});
      const auto model = make_model(config);
      (*model)(Tensor(graph, graph.add_input("x", {DType::kI32, {2, 256}}, Role::kData)));
      return trace.losses().size();
    };
    EXPECT_EQ(losses("0"), 0U) << kind;
    EXPECT_EQ(losses("0.5"), 2U) << kind << ", of 2 layers";
  }
}

}  // namespace
}  // namespace trireme::config_test

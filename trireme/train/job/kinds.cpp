#include "trireme/train/job/kinds.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/train/job/config_impl.h"

namespace trireme {
namespace {

template <class Spec>
std::string names_of_keys(const Spec& spec) {
  const auto copy = spec.copy();
  std::vector<std::string_view> names;
  for (const Key& key : copy->keys()) names.push_back(key.name);
  return joined_text(names, ", ");
}

bool agree_on_hidden_tokens(const nn::ModelSpec& model, const data::DataSpec& data) {
  const std::optional<bool> hides = data.hides_tokens();
  return !hides || *hides == (model.task() == nn::Task::kHiddenTokens);
}

// Kinds of model, at their defaults, that take these fields of the data.
std::vector<std::string> models_for(std::span<const FieldSpec> fields, const data::DataSpec& data) {
  std::vector<std::string> out;
  for (const std::string& kind : nn::model_kinds()) {
    const auto model = nn::model_spec(kind);
    if (meets(fields, model->needs()) && agree_on_hidden_tokens(*model, data)) out.push_back(kind);
  }
  return out;
}

// Kinds of data that are read from files and have, whatever their keys say, the fields that the model takes.
std::vector<std::string> data_for(const nn::ModelSpec& model) {
  std::vector<std::string> out;
  for (const std::string& kind : data::data_kinds()) {
    const auto data = data::data_spec(kind);
    if (data->reads().empty() || data->fields_are_keys()) continue;
    if (meets(data->fields(model.needs()), model.needs()) && agree_on_hidden_tokens(model, *data)) out.push_back(kind);
  }
  return out;
}

void check_fit(const JobConfig& c) {
  const std::vector<FieldNeed> needs = model_of(c).needs();
  const std::vector<FieldSpec> fields = data_of(c).fields(needs);
  std::vector<std::string> others = models_for(fields, data_of(c));
  if (meets(fields, needs)) {
    require(agree_on_hidden_tokens(model_of(c), data_of(c)),
            "configuration: data.kind '{}' {}, and model.kind '{}' {}; use model.kind {}, or data.kind {}", c.data.kind,
            *data_of(c).hides_tokens() ? "hides tokens" : "hides no tokens", c.model.kind,
            *data_of(c).hides_tokens() ? "tells the next one" : "tells hidden ones", quoted_list(others),
            quoted_list(data_for(model_of(c))));
    return;
  }
  std::erase(others, c.model.kind);
  const std::vector<std::string> data = data_for(model_of(c));
  const std::string both =
      fmt::format("the data have {}, and the model takes {}{}", to_string(fields), to_string(needs),
                  data.empty() ? "" : fmt::format("; data.kind {} has them", quoted_list(data)));
  require(others.empty(), "configuration: data.kind '{}' needs model.kind {}, not '{}': {}", c.data.kind,
          others.empty() ? "" : quoted_list(others), c.model.kind, both);
  fail(ErrorKind::kInvalidArgument, "configuration: data.kind '{}' does not go with model.kind '{}': {}", c.data.kind,
       c.model.kind, both);
}

// "4" where all kinds have it, else "gpt 4, llama 8".
std::string of_kinds(const std::vector<std::string>& kinds, const std::vector<std::string>& values) {
  if (std::ranges::count(values, values.front()) == std::ssize(values)) return values.front();
  std::string out;
  for (size_t i = 0; i < kinds.size(); ++i) out += fmt::format("{}{} {}", i > 0 ? ", " : "", kinds[i], values[i]);
  return out;
}

// Help of one section, in the order in which the kinds first name a key.
template <class Make>
void add_help(std::vector<KeyHelp>& to, const char* section, const std::vector<std::string>& kinds, Make&& make) {
  struct Found {
    KeyHelp help;
    std::vector<std::string> kinds, values;  // that have it, and their defaults
  };
  std::vector<Found> found;
  for (const std::string& kind : kinds) {
    const auto spec = make(kind);
    for (const Key& key : spec->keys()) {
      const std::string name = fmt::format("{}.{}", section, key.name);
      auto same = std::ranges::find_if(
          found, [&](const Found& each) { return each.help.name == name && each.help.doc == key.doc; });
      if (same == found.end())
        same =
            found.insert(found.end(), {{.name = name, .doc = std::string(key.doc), .row = key, .usual = {}}, {}, {}});
      same->kinds.push_back(kind);
      same->values.push_back(value_text(key.target));
    }
  }
  std::vector<std::string> names;  // those of one name stand together
  for (const Found& each : found) {
    if (std::ranges::count(names, each.help.name) == 0) names.push_back(each.help.name);
  }
  for (const std::string& name : names) {
    for (const Found& each : found) {
      if (each.help.name != name) continue;
      KeyHelp help = each.help;
      help.doc = fmt::format("{}: {}", joined_text(each.kinds, ", "), help.doc);
      help.usual = of_kinds(each.kinds, each.values);
      to.push_back(std::move(help));
    }
  }
}

// "sgd, adam or adamw".
std::string any_of(std::vector<std::string> kinds) {
  const std::string last = kinds.back();
  kinds.pop_back();
  return kinds.empty() ? last : fmt::format("{} or {}", joined_text(kinds, ", "), last);
}

KeyHelp help_of(const ConfigKey& key, std::string doc) {
  return {key.name, std::move(doc), key.row, value_text(key.target)};
}

template <class Make>
std::string kinds_with_docs(const std::vector<std::string>& kinds, Make&& make) {
  std::string out;
  for (const std::string& kind : kinds)
    out += fmt::format("{}{} ({})", out.empty() ? "" : "; ", kind, make(kind)->doc());
  return out;
}

}  // namespace

const nn::ModelSpec& model_of(const JobConfig& config) {
  invariant(config.model.spec->kind() == config.model.kind, "model.kind = '{}' beside a spec of '{}'",
            config.model.kind, config.model.spec->kind());
  return *config.model.spec;
}

const data::DataSpec& data_of(const JobConfig& config) {
  invariant(config.data.spec->kind() == config.data.kind, "data.kind = '{}' beside a spec of '{}'", config.data.kind,
            config.data.spec->kind());
  return *config.data.spec;
}

const nn::OptimizerSpec& optimizer_of(const JobConfig& config) {
  invariant(config.train.numbers->kind() == config.train.optimizer, "train.optimizer = '{}' beside numbers of '{}'",
            config.train.optimizer, config.train.numbers->kind());
  return *config.train.numbers;
}

std::vector<FieldSpec> fields_of(const JobConfig& config) {
  return data_of(config).fields(model_of(config).needs());
}

void choose_kinds(JobConfig& config) {
  if (config.model.spec->kind() != config.model.kind) config.model.spec = nn::model_spec(config.model.kind);
  if (config.data.spec->kind() != config.data.kind) config.data.spec = data::data_spec(config.data.kind);
  if (config.train.numbers->kind() != config.train.optimizer)
    config.train.numbers = nn::optimizer_spec(config.train.optimizer);
}

JobConfig with_kinds_of(const JobConfig& config) {
  JobConfig out;
  out.model.kind = config.model.kind;
  out.data.kind = config.data.kind;
  out.train.optimizer = config.train.optimizer;
  choose_kinds(out);
  return out;
}

namespace {

void check_held_out(const std::string& name, const KeyTarget& target) {
  const double share = *std::get<double*>(target);
  require(share >= 0 && share < 1, "{} = {}; it is the share of samples held out, from 0 to below 1", name, share);
}

}  // namespace

std::vector<ConfigKey> names_of_kinds(JobConfig& config) {
  return {{"model.kind", &config.model.kind, ""},
          {"data.kind", &config.data.kind, ""},
          {"train.optimizer", &config.train.optimizer, ""}};
}

std::vector<ConfigKey> optimizer_keys(JobConfig& config) {
  std::vector<ConfigKey> out;
  add_keys(out, "train",
           {{.name = "optimizer",
             .target = &config.train.optimizer,
             .doc = "which",
             .flag = "--optimizer",
             .in_bench = true,
             .on_resume = OnResume::kRefused},
            {.name = "lr",
             .target = &config.train.lr,
             .doc = "peak learning rate",
             .check =
                 [](const std::string& name, const KeyTarget& target) {
                   const double rate = *std::get<double*>(target);
                   require(rate > 0, "{} = {}; it must be above 0", name, rate);
                 },
             .flag = "--lr",
             .of_run = true}});
  add_keys(out, "train", config.train.numbers->keys());
  return out;
}

std::vector<ConfigKey> keys_of_kinds(JobConfig& config) {
  std::vector<ConfigKey> out;
  add_keys(out, "model", {{.name = "kind", .target = &config.model.kind, .doc = "of model"}});
  add_keys(out, "model", config.model.spec->keys());
  add_keys(out, "data", {{.name = "kind", .target = &config.data.kind, .doc = "of data"}});
  add_keys(out, "data", config.data.spec->keys());
  add_keys(out, "data",
           {{.name = "validation",
             .target = &config.data.validation,
             .doc = "share of the samples that is held out for validation",
             .check = check_held_out,
             .on_resume = OnResume::kRefused}});
  return out;
}

std::vector<std::pair<std::string, std::string>> effects_of_kinds(const JobConfig& config) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const KeyWithoutEffect& key : model_of(config).without_effect()) {
    out.emplace_back(fmt::format("model.{}", key.name), key.reason);
  }
  for (const KeyWithoutEffect& key : data_of(config).without_effect(config.model.kind, model_of(config).needs())) {
    out.emplace_back(fmt::format("data.{}", key.name), key.reason);
  }
  return out;
}

void check_kinds(const JobConfig& config) {
  model_of(config).check();
  check_fit(config);
  data_of(config).check(model_of(config).needs());
  optimizer_of(config).check("configuration: train.");
}

OtherKinds::OtherKinds(const JobConfig& config) {
  for (const std::string& kind : nn::model_kinds()) {
    if (kind != config.model.kind) add_keys(keys_, "model", models_.emplace_back(nn::model_spec(kind))->keys());
  }
  for (const std::string& kind : data::data_kinds()) {
    if (kind != config.data.kind) add_keys(keys_, "data", data_.emplace_back(data::data_spec(kind))->keys());
  }
  for (const std::string& kind : nn::optimizer_kinds()) {
    if (kind != config.train.optimizer)
      add_keys(keys_, "train", optimizers_.emplace_back(nn::optimizer_spec(kind))->keys());
  }
  for (const ConfigKey& key : keys_) defaults_.push_back(value_text(key.target));
}

void OtherKinds::check(const JobConfig& config) const {
  for (size_t i = 0; i < keys_.size(); ++i) {
    const std::string value = value_text(keys_[i].target);
    bool usual = false;
    for (size_t k = 0; k < keys_.size(); ++k)
      usual = usual || (keys_[k].name == keys_[i].name && defaults_[k] == value);
    if (usual) continue;
    require(!keys_[i].name.starts_with("train."),
            "configuration: {} = {} has no effect with train.optimizer = '{}'; leave it out, or at its default of {}",
            keys_[i].name, value, config.train.optimizer, defaults_[i]);
    const bool of_model = keys_[i].name.starts_with("model.");
    fail(ErrorKind::kInvalidArgument,
         "configuration: {} = {} has no effect with {}.kind = '{}', whose keys are {}; leave it out, or at its default "
         "of "
         "{}",
         keys_[i].name, value, of_model ? "model" : "data", of_model ? config.model.kind : config.data.kind,
         of_model ? names_of_keys(model_of(config)) : names_of_keys(data_of(config)), defaults_[i]);
  }
}

std::vector<KeyHelp> all_keys() {
  JobConfig usual;
  const auto models = [](const std::string& kind) { return nn::model_spec(kind); };
  const auto data = [](const std::string& kind) { return data::data_spec(kind); };
  const auto optimizers = [](const std::string& kind) { return nn::optimizer_spec(kind); };
  std::vector<KeyHelp> numbers;
  add_help(numbers, "train", nn::optimizer_kinds(), optimizers);
  std::vector<KeyHelp> out;
  for (const ConfigKey& key : config_keys(usual)) {
    if (key.name == "model.kind") {
      out.push_back(help_of(key, kinds_with_docs(nn::model_kinds(), models)));
      add_help(out, "model", nn::model_kinds(), models);
    } else if (key.name == "data.kind") {
      out.push_back(help_of(key, kinds_with_docs(data::data_kinds(), data)));
      add_help(out, "data", data::data_kinds(), data);
    } else if (key.name == "train.optimizer") {
      out.push_back(help_of(key, any_of(nn::optimizer_kinds())));
      out.insert(out.end(), numbers.begin(), numbers.end());
    } else if (std::ranges::count(numbers, key.name, &KeyHelp::name) > 0) {
      continue;  // listed with train.optimizer
    } else if (key.name == "data.validation" || !(key.name.starts_with("model.") || key.name.starts_with("data."))) {
      out.push_back(help_of(key, std::string(key.doc)));
    }
  }
  return out;
}

std::string defaults_of_kinds() {
  std::string out;
  const auto add = [&](const char* section, const std::string& kind, std::vector<Key> keys,
                       const char* names_kind = "kind") {
    out += fmt::format("\n[{}]\n{} = \"{}\"\n", section, names_kind, kind);
    for (const Key& key : keys) out += fmt::format("{} = {}\n", key.name, value_text(key.target));
  };
  for (const std::string& kind : nn::model_kinds()) add("model", kind, nn::model_spec(kind)->keys());
  for (const std::string& kind : data::data_kinds()) add("data", kind, data::data_spec(kind)->keys());
  for (const std::string& kind : nn::optimizer_kinds())
    add("train", kind, nn::optimizer_spec(kind)->keys(), "optimizer");
  return out;
}

std::unique_ptr<nn::Module> make_model(const JobConfig& config) {
  return model_of(config).make(fields_of(config));
}

bool has_loss_in_parts(const JobConfig& config) {
  const auto& p = config.parallel;
  return p.vocabulary && (p.tp > 1 || !p.mesh.empty() || !p.strategy.empty());
}

LossFn make_loss(const JobConfig& config) {
  const nn::LossOptions options{.label_smoothing = config.train.label_smoothing, .in_parts = has_loss_in_parts(config)};
  return [spec = config.model.spec, options](const nn::Fields& predicted, const nn::Fields& batch) {
    return spec->loss(predicted, batch, options);
  };
}

data::Split make_data(const JobConfig& config) {
  const data::DataSpec& spec = data_of(config);
  data::SourcePtr source;
  try {
    source = spec.open(model_of(config).needs());
  } catch (Error& e) {
    if (!spec.reads().empty()) e.note(fmt::format("while reading {} of the configuration", spec.reads()));
    throw;
  }
  invariant(source->fields() == fields_of(config), "data.kind '{}' gives {} and said {}", config.data.kind,
            to_string(source->fields()), to_string(fields_of(config)));
  const double share = config.data.validation;
  if (share == 0) return {source, nullptr};
  data::Split split = data::split_fraction(source, share, config.train.step.seed, spec.validation_blocks());
  require(
      split.train->size() >= config.train.fit.batch,
      "data: {} samples are {} to train on and {} held out (data.validation = {}), too few for a batch of {}; use a "
      "smaller train.batch or more data, or data.validation = 0 to hold none out",
      source->size(), split.train->size(), split.validation->size(), share, config.train.fit.batch);
  require(split.validation->size() >= 1,
          "data: of {} samples data.validation = {} holds out none; use a larger share, or 0 to hold none out",
          source->size(), share);
  return split;
}

std::vector<BatchField> batch_of(const JobConfig& config, int64_t batch) {
  std::vector<BatchField> out;
  for (const FieldSpec& field : fields_of(config)) {
    TensorType type{field.sample.dtype, {batch}};
    for (const int64_t size : field.sample.shape) type.shape.push_back(size);
    out.push_back({field.name, type});
  }
  return out;
}

bool predicts_classes(const JobConfig& config) {
  return model_of(config).task() == nn::Task::kClasses;
}

bool writes_text(const JobConfig& config) {
  const nn::ModelSpec& spec = model_of(config);
  return spec.task() == nn::Task::kTokens && spec.needs()[0].below == data::kByteVocabulary;
}

}  // namespace trireme

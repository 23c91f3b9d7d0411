#include "trireme/nn/models/wide_deep.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"

namespace trireme::nn {
namespace {

std::vector<int64_t> sizes_of_deep(const WideDeepConfig& config) {
  std::vector<int64_t> out{config.dense + config.ids * config.width};
  out.insert(out.end(), config.hidden.begin(), config.hidden.end());
  out.push_back(config.classes);
  return out;
}

const WideDeepConfig& checked_wide_deep(const WideDeepConfig& config) {
  require(config.dense >= 1 && config.ids >= 1 && config.vocabulary >= 1 && config.width >= 1 && config.classes >= 1,
          "wide_deep: dense {}, ids {}, vocabulary {}, width {} and classes {} must be 1 or more", config.dense,
          config.ids, config.vocabulary, config.width, config.classes);
  check_sizes(
      "wide_deep", static_cast<int64_t>(config.hidden.size()),
      {{"dense", config.dense}, {"ids", config.ids}, {"vocabulary", config.vocabulary}, {"width", config.width}});
  return config;
}

}  // namespace

WideDeep::WideDeep(const WideDeepConfig& config)
    : config_(checked_wide_deep(config)),
      wide_("wide"),
      deep_("deep"),
      wide_ids_(config.vocabulary, config.classes, {"ids", 0.01}),
      wide_dense_(config.dense, config.classes, {.name = "dense"}),
      table_(config.vocabulary, config.width, {"table", 0.05}),
      layers_(sizes_of_deep(config), "mlp") {}

Fields WideDeep::forward_batch(const Fields& batch) {
  const Tensor& dense = batch["dense"];
  const Tensor& ids = batch["ids"];
  require(dense.rank() == 2 && dense.size(1) == config_.dense && ids.rank() == 2 && ids.size(1) == config_.ids,
          "wide_deep: dense is {} and ids {}; they must be [batch,{}] and [batch,{}]", to_string(dense.type()),
          to_string(ids.type()), config_.dense, config_.ids);
  Tensor wide;
  {
    const Scope scope(wide_);
    const Tensor of_ids = reduce_sum(wide_ids_(ids), {1});
    wide = add(wide_dense_(dense), of_ids);
  }
  const Scope scope(deep_);
  const Tensor vectors = reshape(table_(ids), std::vector<int64_t>{ids.size(0), -1});
  const Tensor rows = concat({Trace::current().in_compute_type(dense), vectors}, 1);
  return {{kPrediction, add(wide, layers_(rows))}};
}

namespace {

class WideDeepSpec final : public ModelSpecOf<WideDeepSpec> {
 public:
  std::string_view kind() const override { return "wide_deep"; }
  std::string_view doc() const override { return "Wide & Deep, on rows of numbers and of ids"; }
  Task task() const override { return Task::kClasses; }

  std::vector<Key> keys() override {
    return {{"vocabulary", &c_.vocabulary, "number of ids, in all columns together", check_size},
            {"width", &c_.width, "size of the vector that stands for an id", check_size},
            {"hidden", &c_.hidden, "sizes of the hidden layers", check_size},
            {"classes", &c_.classes, "number of classes", check_size}};
  }
  std::vector<FieldNeed> needs() const override {
    return {{.name = "dense", .dtype = DType::kF32, .sizes = {0}},
            {.name = "ids", .dtype = DType::kI32, .sizes = {0}, .below = c_.vocabulary},
            {.name = "label", .dtype = DType::kI32, .below = c_.classes}};
  }
  std::unique_ptr<Module> make(std::span<const FieldSpec> fields) const override {
    return std::make_unique<WideDeep>(for_fields(fields));
  }
  double least_parameters(std::span<const FieldSpec> fields) const override {
    const std::vector<int64_t> sizes = sizes_of_deep(for_fields(fields));
    double out = static_cast<double>(c_.vocabulary) * static_cast<double>(c_.width + c_.classes);
    for (size_t i = 0; i + 1 < sizes.size(); ++i)
      out += static_cast<double>(sizes[i]) * static_cast<double>(sizes[i + 1]);
    return out;
  }

  Cuttable cuttable() const override { return {.weights = true}; }
  std::vector<Cut> cuts(const CutRequest&) const override { return mlp_cuts("deep.mlp.layers.", c_.hidden.size() + 1); }

  std::string describe() const override {
    return fmt::format("wide_deep, {} ids of width {}, hidden layers of {}", c_.vocabulary, c_.width,
                       joined_text(c_.hidden, " and "));
  }

 private:
  WideDeepConfig for_fields(std::span<const FieldSpec> fields) const {
    WideDeepConfig config = c_;
    config.dense = fields[0].sample.shape[0];
    config.ids = fields[1].sample.shape[0];
    return config;
  }

  WideDeepConfig c_;
};

}  // namespace

std::unique_ptr<ModelSpec> wide_deep_spec() {
  return std::make_unique<WideDeepSpec>();
}

}  // namespace trireme::nn

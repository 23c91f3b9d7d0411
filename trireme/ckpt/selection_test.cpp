#include "trireme/ckpt/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/ckpt/checkpoints_for_tests.h"

namespace trireme::ckpt::selection_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Names alone.
class Names final : public TensorSource {
 public:
  explicit Names(std::vector<std::string> names) : names_(std::move(names)) {}
  std::string text() const override { return "'these'"; }
  std::vector<std::string> names() const override { return names_; }
  bool has(std::string_view name) const override { return std::ranges::find(names_, name) != names_.end(); }
  const TensorType& type(const std::string&) const override { return type_; }
  bool is_state_of_parameter(const std::string& name) const override { return name.ends_with(".m"); }
  int64_t ranks_with_own(const std::string&) const override { return 0; }
  void read(const std::string&, const Box&, const View&) const override {}

 private:
  std::vector<std::string> names_;
  TensorType type_{DType::kF32, {1}};
};

const Names kModel({"h.0.bias", "h.0.weight", "h.0.weight.m", "h.1.weight", "wte"});

std::vector<std::string> selected(const Selection& selection) {
  std::vector<std::string> out;
  for (const Selected& each : select(kModel, selection)) {
    out.push_back(each.name == each.renamed ? each.name : each.name + ">" + each.renamed);
  }
  return out;
}

TEST(Selection, TakesAllButTheOptimizersOrWhatIsAskedFor) {
  EXPECT_THAT(selected({}), ElementsAre("h.0.bias", "h.0.weight", "h.1.weight", "wte"));
  EXPECT_THAT(selected({.only = {"h.0.*"}, .state = true}), ElementsAre("h.0.bias", "h.0.weight", "h.0.weight.m"));
  EXPECT_THAT(selected({.only = {"h.*"}, .except = {"*.bias"}}), ElementsAre("h.0.weight", "h.1.weight"));
}

TEST(Selection, TheFirstRenameThatFitsCounts) {
  EXPECT_THAT(selected({.renames = {parse_rename("h.0.*=first.*.x"), parse_rename("h.*=model.layers.*"),
                                    parse_rename("wte=embedding")}}),
              ElementsAre("h.0.bias>first.bias.x", "h.0.weight>first.weight.x", "h.1.weight>model.layers.1.weight",
                          "wte>embedding"));
}

TEST(Selection, ARenameIsTwoNamesOrTwoPatterns) {
  for (const char* text : {"", "a", "=", "a=", "=b", "a*=b", "a=b*", "**=*", "a.*.b.*=*.*"}) {
    EXPECT_THAT(caught([&] { parse_rename(text); }).text, HasSubstr("renames nothing; write OLD=NEW")) << text;
  }
  EXPECT_EQ(parse_rename(" a.* = * ").from, "a.*");
}

TEST(Selection, WhatFitsNothingIsRefused) {
  const auto refused = [](const Selection& selection) { return caught([&] { select(kModel, selection); }).text; };
  EXPECT_EQ(refused({.only = {"h.0.weigth"}}), "'h.0.weigth' names no tensor of 'these'. Did you mean 'h.0.weight'?");
  EXPECT_EQ(refused({.except = {"x.*"}}), "'x.*' names no tensor of 'these'");
  EXPECT_EQ(refused({.renames = {{"x.*", "*"}}}), "'x.*=*' renames no tensor of 'these'");
  EXPECT_EQ(refused({.renames = {{"h.0.*", "h.1.*"}}}),
            "'h.0.weight' and 'h.1.weight' of 'these' would both be called 'h.1.weight'");
  EXPECT_EQ(refused({.only = {"wte"}, .except = {"w*"}}), "nothing of 'these' is left");
}

}  // namespace
}  // namespace trireme::ckpt::selection_test

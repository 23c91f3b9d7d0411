#include "trireme/ir/attrs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::attrs_test {
namespace {

struct AllAttrs {
  bool flag = false;
  int64_t count = -3;
  double rate = 0.1;
  DType dtype = DType::kBF16;
  std::string label = "plain";
  Shape shape{2, 3};
  std::vector<int64_t> dims = {0, -1};
  static constexpr auto fields() {
    return std::tuple{field("flag", &AllAttrs::flag),   field("count", &AllAttrs::count),
                      field("rate", &AllAttrs::rate),   field("dtype", &AllAttrs::dtype),
                      field("label", &AllAttrs::label), field("shape", &AllAttrs::shape),
                      field("dims", &AllAttrs::dims)};
  }
};

struct OtherAttrs {
  bool flag = false;
  static constexpr auto fields() { return std::tuple{field("flag", &OtherAttrs::flag)}; }
};

std::string error_of(std::string_view text) {
  try {
    Attrs::parse<AllAttrs>(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    return e.text();
  }
  return "no error";
}

TEST(Attrs, PrintEveryFieldInOrder) {
  EXPECT_EQ(Attrs::of(AllAttrs{}).text(),
            "{flag=false, count=-3, rate=0.1, dtype=bf16, label=\"plain\", shape=[2,3], dims=[0,-1]}");
  EXPECT_EQ(Attrs().text(), "{}");
}

TEST(Attrs, ReadBackEqualWithAwkwardValues) {
  AllAttrs value;
  value.flag = true;
  value.rate = 1.0 / 3;
  value.label = "a=\"b\", {c} \\ [d\nnext";
  value.shape = {};
  value.dims = {};
  const Attrs attrs = Attrs::of(value);

  const Attrs back = Attrs::parse<AllAttrs>(attrs.text());

  EXPECT_EQ(back, attrs);
  EXPECT_EQ(back.as<AllAttrs>().label, value.label);
  EXPECT_EQ(back.as<AllAttrs>().rate, 1.0 / 3);
}

TEST(Attrs, KeepDefaultsOfFieldsThatAreNotGiven) {
  const Attrs attrs = Attrs::parse<AllAttrs>("{count=7, dims=[4]}");

  EXPECT_EQ(attrs.as<AllAttrs>().count, 7);
  EXPECT_EQ(attrs.as<AllAttrs>().dims, std::vector<int64_t>{4});
  EXPECT_EQ(attrs.as<AllAttrs>().label, "plain");
}

TEST(Attrs, OfTwoOpsDifferEvenWithOneText) {
  EXPECT_FALSE(Attrs::parse<OtherAttrs>("{}") == Attrs());
  EXPECT_FALSE(Attrs::of(OtherAttrs{true}) == Attrs::of(OtherAttrs{false}));
  EXPECT_THROW(Attrs().as<OtherAttrs>(), Error);
}

TEST(Attrs, GiveAFieldByItsName) {
  const Attrs attrs = Attrs::parse<AllAttrs>("{rate=0.5, dims=[4]}");

  EXPECT_EQ(attrs.get<double>("rate"), 0.5);
  EXPECT_EQ(attrs.get<std::vector<int64_t>>("dims"), std::vector<int64_t>{4});
  EXPECT_THAT([&] { attrs.get<double>("rat"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("have no field 'rat'")));
  EXPECT_THAT([&] { attrs.get<int64_t>("rate"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("'rate' of attributes {flag=false")));
}

TEST(Attrs, NameWhatTheyCannotRead) {
  EXPECT_EQ(error_of("{cuont=1}"), "no attribute 'cuont'. Did you mean 'count'?");
  EXPECT_EQ(error_of("{count=1.5}"), "attribute 'count': cannot read '1.5'");
  EXPECT_EQ(error_of("{flag=yes}"), "attribute 'flag': cannot read 'yes'");
  EXPECT_EQ(error_of("{dtype=f128}"), "attribute 'dtype': cannot read 'f128'");
  EXPECT_EQ(error_of("{label=plain}"), "attribute 'label': cannot read 'plain'");
  EXPECT_EQ(error_of("{shape=[2,-3]}"), "attribute 'shape': cannot read '[2,-3]'");
  EXPECT_EQ(error_of("{dims=[1,]}"), "attribute 'dims': cannot read '[1,]'");
  EXPECT_EQ(error_of("count=1"), "attributes 'count=1': expected {name=value, ...}");
  EXPECT_EQ(error_of("{count}"), "attributes '{count}': expected name=value at 'count'");
}

}  // namespace
}  // namespace trireme::attrs_test

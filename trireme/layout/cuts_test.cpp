#include "trireme/layout/cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::cuts_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(NamedLayout, is_read_before_its_mesh_is_known) {
  const NamedLayout layout = "[ dp*tp.1,-] partial(max : sp)";
  EXPECT_EQ(to_string(layout), "[dp*tp.1, -] partial(max: sp)");
  EXPECT_EQ(NamedLayout(to_string(layout)), layout);

  const Mesh mesh({{"dp", 2}, {"tp", 4}, {"sp", 3}});
  EXPECT_EQ(to_string(layout.on(mesh), mesh), to_string(layout));
  EXPECT_EQ(NamedLayout(layout.on(mesh), mesh), layout);
}

TEST(NamedLayout, an_axis_that_the_mesh_has_not_is_refused_on_the_mesh) {
  const NamedLayout layout = "[dq]";
  EXPECT_THAT([&] { layout.on(Mesh({{"dp", 2}})); }, ThrowsMessage<Error>(HasSubstr("'dq'")));
}

TEST(Cuts, are_numbers_or_layouts) {
  const Cuts numbers = "{{4, 2}, {2, 1}, {}} -> {{8}}";
  EXPECT_THAT(ranks_of(numbers.operands), ElementsAre(2, 2, 0));
  EXPECT_EQ(std::get<std::vector<PartsOfDims>>(*numbers.results), (std::vector<PartsOfDims>{{8}}));

  const Cuts layouts = " [dp, tp], [tp, -], [] ";
  EXPECT_THAT(ranks_of(layouts.operands), ElementsAre(2, 2, 0));
  EXPECT_FALSE(layouts.results.has_value());
  EXPECT_EQ(layouts.text, "[dp, tp], [tp, -], []");
  EXPECT_EQ(Cuts::by_parts({{2, 1}, {1, 4}}), Cuts("{{2,1},{1,4}}"));
}

TEST(Cuts, what_is_neither_is_refused_where_it_is_written) {
  const auto written = [](const char* text) { return [text] { static_cast<void>(Cuts(text)); }; };
  EXPECT_THAT(written("{{2, x}}"), ThrowsMessage<Error>(HasSubstr("cuts '{{2, x}}': 'x' is not a number of parts")));
  EXPECT_THAT(written("{2, 1}"), ThrowsMessage<Error>(HasSubstr("'2' must stand in braces")));
  EXPECT_THAT(written("[dp, "), ThrowsMessage<Error>(HasSubstr("'[dp,' is not a layout")));
  EXPECT_THAT(written("[dp] -> dp"), ThrowsMessage<Error>(HasSubstr("'dp' is not a layout")));
}

}  // namespace
}  // namespace trireme::cuts_test

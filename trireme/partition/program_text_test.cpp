#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/partition/partition.h"

namespace trireme::program_text_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::string error_of(std::string_view text) {
  try {
    parse_program(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    return e.text();
  }
  return "no error";
}

std::string with_first_line(const std::string& first) {
  return first + "\ngraph \"g\"\n%0: f32[2,4] = data \"x\"\n";
}

TEST(ProgramText, is_read_back_identical) {
  const std::string text =
      "mesh \"dp=2\" micro_batches 2\n"
      "graph \"a // b\"\n"
      "%0: f32[2,4] = data \"x//y\"  // [dp, -] of [4,4] part 1 of [dp*micro_batch, -] of [8,4]\n"
      "%1: f32[2,1], %2: f32[2,3] = split(%0) {dim=1, sizes=[1,3]} @\"cut\"  // [dp, -] of [4,1] | [dp, -] of [4,3]\n"
      "%3: f32[3] = reduce_sum(%2) {dims=[0], keep_dims=false}  // [-] partial(sum: dp) of [3]\n"
      "%4: f32[3] = all_reduce(%3) {axes=[0], dim=0, from_dim=0, size=2, root=0, reduction=\"sum\", shift=1, "
      "ranks=[]}  // [-] of [3]; over dp, ranks {0,1}\n"
      "output \"y\" %4\n";
  const Program program = parse_program(text);
  EXPECT_EQ(to_string(program), text);
  EXPECT_THAT(verify(program), IsEmpty());
  EXPECT_EQ(program.micro_batches, 2);
  EXPECT_EQ(program.part_of(0)->micro_batch, 1);
  EXPECT_EQ(program.whole[1], (Shape{4, 1}));
  EXPECT_TRUE(program.layouts[3]->is_partial());
}

TEST(ProgramText, values_of_which_nothing_is_told_are_whole_on_every_rank) {
  const Program program = parse_program(with_first_line("mesh \"dp=2\" by hand  // two ranks"));
  EXPECT_TRUE(program.by_hand);
  EXPECT_TRUE(program.layouts[0]->is_replicated());
  EXPECT_EQ(program.whole[0], (Shape{2, 4}));
}

TEST(ProgramText, what_cannot_be_read_is_refused_with_its_line) {
  EXPECT_EQ(error_of("graph \"g\"\n"), "program text: no line says the mesh, like mesh \"dp=2\"");
  EXPECT_EQ(error_of(with_first_line("mesh \"dp=2\" quickly")),
            "program text, line 1: expected 'micro_batches' or 'by hand', found 'quickly'");
  EXPECT_THAT(error_of(with_first_line("mesh \"dp=2\" micro_batches 0")),
              HasSubstr("line 1: micro_batches 0; it is 1 or more"));
  const std::string head = "mesh \"dp=2\"\ngraph \"g\"\n";
  EXPECT_EQ(error_of(head + "%3: f32[2,4] = data \"x\"\n"),
            "program text, line 3: %3 stands where %0 is made; number values in their order");
  EXPECT_THAT(error_of(head + "%0: f32[2,4] = data \"x\"  // [dp, -] of [4]\n"),
              HasSubstr("line 3: a whole of another"));
  EXPECT_THAT(error_of(head + "%0: f32[2,4] = data \"x\"  // [dp, dp] of [4,8]\n"),
              HasSubstr("line 3: [dp, dp] does not fit"));
  EXPECT_THAT(error_of(head + "%0: f32[2,4] = data \"x\"  // [dp, -] of [4,4] | [-] of [2]\n"),
              HasSubstr("line 3: expected a layout for each value"));
  EXPECT_THAT(error_of(head + "%0: f32[2,4] = data \"x\"  // [dp, -] of [4,4] part 1 of [dp, -] of [4,4]\n"),
              HasSubstr("line 3: a part of a micro-batch that there is not"));
}

TEST(VerifyProgram, a_collective_that_no_rank_can_do_is_found) {
  const auto wrong = [](const std::string& attrs) {
    return verify(parse_program(
        "mesh \"dp=2\"\ngraph \"g\"\n%0: f32[4] = data \"x\"  // [dp] of [8]\n%1: f32[8] = all_gather(%0) " + attrs +
        "  // [-] of [8]\noutput \"y\" %1\n"));
  };
  EXPECT_THAT(wrong("{axes=[0], dim=0, size=2}"), IsEmpty());
  EXPECT_THAT(wrong("{axes=[0], dim=5, size=2}"),
              testing::ElementsAre(HasSubstr("no dimension 5 in an operand f32[4]")));
  EXPECT_THAT(wrong("{axes=[7], dim=0, size=2}"), testing::ElementsAre(HasSubstr("is over axis 7 of the mesh 'dp=2'")));
  EXPECT_THAT(wrong("{axes=[0], dim=0, size=1}"), testing::ElementsAre(HasSubstr("claims a group of 1 ranks")));
}

}  // namespace
}  // namespace trireme::program_text_test

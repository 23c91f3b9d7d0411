// Graphs as text whose sizes and attributes are far beyond what tensors have: each is refused, by its type or by its
// op, and none overflows. tests/fuzz looks for more of them.
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/op/build.h"
#include "trireme/op/registry.h"

namespace trireme::refusals_test {
namespace {

// What is wrong with a graph of one input and one op on it.
std::string refusal(const std::string& input, const std::string& op) {
  try {
    const std::vector<std::string> wrong =
        verify(parse_graph("%0: " + input + " = data \"x\"\n%1: f32[1] = " + op + "\noutput \"y\" %1\n", find_op_base));
    return wrong.empty() ? "sound" : wrong.front();
  } catch (const Error& e) {
    return e.text();
  }
}

TEST(Refusals, TypesHoldNoMoreElementsThanBytesCanBeCounted) {
  EXPECT_NE(refusal("f32[4611686018427387904]", "relu(%0)").find("more than 2^58 elements"), std::string::npos);
  EXPECT_NE(refusal("f32[3037000500,3037000500]", "relu(%0)").find("more than 2^58 elements"), std::string::npos);
}

TEST(Refusals, AttributesBeyondTheOperandAreRefused) {
  for (const char* op :
       {"slice(%0) {starts=[9223372036854775807,0], sizes=[9223372036854775807,1]}",
        "split(%0) {dim=0, sizes=[9223372036854775807,9223372036854775807]}",
        "pad(%0) {before=[9223372036854775807,0], after=[9223372036854775807,0]}",
        "shard_slice(%0) {axes=[0], dim=0, from_dim=0, size=0, root=0, reduction=\"sum\", shift=1, ranks=[]}",
        "all_gather(%0) {axes=[0], dim=0, from_dim=0, size=9223372036854775807, root=0, reduction=\"sum\", shift=1, "
        "ranks=[]}",
        "take_windows(%0) {axes=[0], ranks=[], size=0, dim=0, extent=0, offset=0, step=0, length=0, fill=0}",
        "take_windows(%0) {axes=[0], ranks=[], size=65536, dim=0, extent=65536, offset=-9223372036854775808, "
        "step=9223372036854775807, length=1, fill=0}"}) {
    const std::string why = refusal("f32[4,6]", op);
    EXPECT_NE(why, "sound") << op;
    EXPECT_EQ(why.find("no op named"), std::string::npos) << why;
    EXPECT_EQ(why.find("attribute"), std::string::npos) << op << ": " << why;
  }
}

}  // namespace
}  // namespace trireme::refusals_test

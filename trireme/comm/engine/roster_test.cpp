#include "trireme/comm/engine/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::comm::roster_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(std::string_view list) {
  try {
    decode_list(list);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kComm);
    return e.text();
  }
  return "taken";
}

TEST(Roster, AListIsTakenApart) {
  EXPECT_THAT(decode_list("0000000bhello world00000000"), ElementsAre("hello world", ""));
  EXPECT_THAT(decode_list(""), IsEmpty());
}

TEST(Roster, AListThatAnotherBuildMadeIsRefused) {
  EXPECT_THAT(refusal("0000"), HasSubstr("no length at byte 0"));
  EXPECT_THAT(refusal("0000000xhello"), HasSubstr("no length at byte 0"));
  EXPECT_THAT(refusal("00000001ab"), HasSubstr("no length at byte 9"));
  EXPECT_THAT(refusal("ffffffffab"), HasSubstr("a list of 10 bytes has a value of 4294967295 at byte 8"));
}

}  // namespace
}  // namespace trireme::comm::roster_test

#include "trireme/base/json_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace trireme::json_text_test {
namespace {

TEST(JsonText, ValuesOfEachType) {
  EXPECT_EQ(JsonText("gpt").text(), "\"gpt\"");
  EXPECT_EQ(JsonText(std::string("a\"b\\\n\x01")).text(), "\"a\\\"b\\\\\\n\\u0001\"");
  EXPECT_EQ(JsonText(std::string_view("\xff")).text(), "\"\xef\xbf\xbd\"");
  EXPECT_EQ(JsonText(true).text(), "true");
  EXPECT_EQ(JsonText(-3).text(), "-3");
  EXPECT_EQ(JsonText(std::numeric_limits<int64_t>::min()).text(), "-9223372036854775808");
  EXPECT_EQ(JsonText(std::numeric_limits<uint64_t>::max()).text(), "18446744073709551615");
  EXPECT_EQ(JsonText(1.0).text(), "1.0");  // a number with a fraction stays one
  EXPECT_EQ(JsonText(0.1).text(), "0.1");  // as short as reads back to the same
  EXPECT_EQ(JsonText(static_cast<double>(0.1F)).text(), "0.10000000149011612");
  EXPECT_EQ(JsonText(std::numeric_limits<double>::quiet_NaN()).text(), "null");
  EXPECT_EQ(JsonText(std::vector<JsonText>{}).text(), "[]");
  EXPECT_EQ(JsonText(std::vector<JsonText>{1, "a", false}).text(), "[1,\"a\",false]");
  EXPECT_EQ(JsonText(std::vector<std::string>{"a", "b"}).text(), "[\"a\",\"b\"]");
}

TEST(JsonText, MembersStandInTheirOrder) {
  JsonObject line{{"z", 1}, {"a", JsonObject{{"\"", 2.5}}}};
  line.add("m", std::vector<std::string>{"x"});
  line.add({{"n", "y"}, {"o", true}});

  EXPECT_EQ(line.text(), R"({"z":1,"a":{"\"":2.5},"m":["x"],"n":"y","o":true})");
  EXPECT_EQ(line.members()[1].value.text(), R"({"\"":2.5})");
  EXPECT_EQ(JsonObject{}.text(), "{}");
}

}  // namespace
}  // namespace trireme::json_text_test

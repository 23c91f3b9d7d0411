#include "trireme/launch/start/rank_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/utf8.h"

namespace trireme::launch::rank_table_test {
namespace {

using testing::HasSubstr;

constexpr std::string_view kTwoHosts =
    R"({"version": "1.0", "server_count": "2", "status": "completed", "server_list": [
    {"server_id": "10.0.0.5", "host_nic_ip": "reserve", "device": [
      {"device_id": "0", "device_ip": "10.1.0.5", "rank_id": "0"},
      {"device_id": "1", "device_ip": "10.1.1.5", "rank_id": "1"}]},
    {"server_id": "10.0.0.6", "host_nic_ip": "reserve", "device": [
      {"device_id": "4", "device_ip": "10.1.0.6", "rank_id": "2"}]}]})";

// The table with one piece of its text replaced.
std::string changed(std::string_view from, std::string_view to) {
  std::string text(kTwoHosts);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  try {
    return fmt::format("{} ranks", parse_rank_table(text, "table").ranks.size());
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument) << e.what();
    return e.text();
  }
}

TEST(RankTable, Contracts16_EveryRankHasItsHostAndDevice) {
  const RankTable table = parse_rank_table(kTwoHosts, "table");

  ASSERT_EQ(table.ranks.size(), 3U);
  EXPECT_EQ(table.servers, 2);
  EXPECT_EQ(table.ranks[1].server, "10.0.0.5");
  EXPECT_EQ(table.ranks[1].device, 1);
  EXPECT_EQ(table.ranks[1].local_rank, 1);
  EXPECT_EQ(table.ranks[1].local_world, 2);
  EXPECT_EQ(table.ranks[2].server, "10.0.0.6");
  EXPECT_EQ(table.ranks[2].device, 4);
  EXPECT_EQ(table.ranks[2].local_rank, 0);
  EXPECT_EQ(table.ranks[2].local_world, 1);
}

TEST(RankTable, Contracts16_EveryMistakeIsNamed) {
  EXPECT_EQ(refusal(changed("\"version\": \"1.0\"", "\"version\": \"2.0\"")),
            "table: version is '2.0'; only '1.0' is known");
  EXPECT_EQ(refusal(changed("\"version\": \"1.0\"", "\"version\": 1.0")),
            "table: the table.version is number 1.0; all values are strings, as in \"1.0\"");
  EXPECT_EQ(refusal(changed("\"version\": \"1.0\", ", "")), "table: the table has no 'version'");
  EXPECT_EQ(refusal(changed("completed", "initializing")),
            "table: status is 'initializing'; a table that can be used says 'completed'");
  EXPECT_EQ(refusal(changed("\"server_count\": \"2\"", "\"server_count\": \"3\"")),
            "table: server_count is '3' but server_list has 2 servers");
  EXPECT_EQ(refusal(changed("\"rank_id\": \"2\"", "\"rank_id\": \"1\"")),
            "table: server_list[0].device[1] and server_list[1].device[0] have rank_id '1'; each "
            "rank has "
            "one device");
  EXPECT_EQ(refusal(changed("\"rank_id\": \"2\"", "\"rank_id\": \"3\"")),
            "table: there are 3 devices but none has rank_id '2'; ranks go from 0 to 2");
  EXPECT_EQ(refusal(changed("\"rank_id\": \"2\"", "\"rank_id\": 2")),
            "table: server_list[1].device[0].rank_id is number 2; all values are strings, as in \"2\"");
  EXPECT_EQ(refusal(changed("\"rank_id\": \"2\"", "\"rank_id\": \"-1\"")),
            "table: server_list[1].device[0].rank_id is '-1'; it must be a whole number from 0 to 65535");
  EXPECT_EQ(refusal(changed("\"device_id\": \"1\"", "\"device_id\": \"0\"")),
            "table: server_list[0].device[1] and another device of '10.0.0.5' have device_id '0'");
  EXPECT_EQ(refusal(changed("10.0.0.6", "10.0.0.5")), "table: server_id '10.0.0.5' appears twice");
  EXPECT_EQ(refusal(changed("\"10.0.0.6\"", "\"\"")),
            "table: server_list[1].server_id is empty; it is the address of that host");
  EXPECT_EQ(refusal(changed("10.0.0.6", "10.0.0.10")),
            "table: rank 1 is on '10.0.0.5' and rank 2 on '10.0.0.10'; the order of rank_id must "
            "follow the "
            "lexical order of server_id");
  EXPECT_EQ(refusal(changed("rank_id", "rankid")),
            "table: server_list[0].device[0] has the unknown key 'rankid'. Did you mean 'rank_id'?");
  EXPECT_EQ(refusal(changed("status", "state")).substr(0, 42), "table: the table has the unknown key 'stat");
}

TEST(RankTable, WhatIsNoTableIsRefused) {
  EXPECT_THAT(refusal("{"), HasSubstr("table: not valid JSON"));
  EXPECT_TRUE(is_utf8(refusal("\xff\xfe{")));
  EXPECT_EQ(refusal("[]"), "table: the table is array, not an object");
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("JSON deeper than"));
  EXPECT_THAT(refusal(R"({"version": "1.0", "version": "1.0"})"), HasSubstr("'version' appears twice"));
  EXPECT_EQ(refusal(R"({"version": "1.0", "status": "completed", "server_count": "0", "server_list": []})"),
            "table: the table.server_list must be a list of 1 to 65536 entries");
  EXPECT_EQ(refusal(R"({"version": "1.0", "status": "completed", "server_count": "1", "server_list": [7]})"),
            "table: server_list[0] is number, not an object");
}

// Whatever bytes a file has, the answer is a table or an error.
TEST(RankTable, TextsCutAtAnyPlaceAreRefused) {
  for (size_t length = 0; length < kTwoHosts.size(); ++length) {
    EXPECT_THROW((void)parse_rank_table(kTwoHosts.substr(0, length), "table"), Error) << length;
  }
}

}  // namespace
}  // namespace trireme::launch::rank_table_test

#include "trireme/train/plan/parts/priced_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"

namespace trireme::priced_tables_test {
namespace {

using testing::HasSubstr;

PricedTables some_tables() {
  PartPrices prices;
  prices.parts = {{.forward = 5, .update = -3}, {.weight_grad = 7, .kept = 11, .kept_disk = 12}, {.sums = 13}};
  prices.messages = 2;
  prices.message_bytes = 96;
  prices.crossing = 17;
  PricedTables out;
  PricedTables::OfJob& first = out.by_key["a"];
  first[{.tp = 2, .rows = 4}] = {.prices = prices};
  prices.is_joined = true;
  prices.parts.insert(prices.parts.begin() + 1, PartPrice{.sync = 1});
  first[{.tp = 4, .recompute = WayRecompute::kFull, .kept_slices = true, .keep = Tier::kHost}] = {.prices = prices};
  first[{.tp = 8}] = {.prices = std::nullopt, .refusal = "no\\ such\nway\\"};
  out.by_key["b"][{.dp = 2, .zero = 1, .place = {Tier::kDisk, Tier::kHost}}] = {.prices = std::nullopt};
  return out;
}

std::string error_of_text(const std::string& text) {
  try {
    parse_priced_tables(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

// With a checksum that is right.
std::string with_lines(std::string text, const std::string& from, const std::string& to) {
  text.resize(text.rfind("end "));
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return text + "end " + sha256_hex(text) + "\n";
}

TEST(PricedTables, are_read_as_they_were_written) {
  const PricedTables tables = some_tables();
  EXPECT_EQ(parse_priced_tables(to_string(tables)), tables);
  EXPECT_EQ(parse_priced_tables(to_string(PricedTables())), PricedTables());
}

TEST(PricedTables, of_another_program_are_none) {
  EXPECT_EQ(parse_priced_tables(with_lines(to_string(some_tables()), "\nprogram ", "\nprogram x")), std::nullopt);
}

TEST(PricedTables, that_were_changed_or_cut_off_are_refused) {
  const std::string text = to_string(some_tables());
  EXPECT_THAT(error_of_text(""), HasSubstr("'' is not 'trireme tables 3'"));
  EXPECT_THAT(error_of_text("trireme tables 1\n"), HasSubstr("this is no file of tables, or one of another version"));
  EXPECT_THAT(error_of_text(text.substr(0, text.size() - 1)), HasSubstr("part of it is missing"));
  std::string changed = text;
  changed.replace(changed.find("rows=4"), 6, "rows=5");
  EXPECT_THAT(error_of_text(changed), HasSubstr("its checksum does not match its lines"));
}

TEST(PricedTables, of_lines_that_say_something_else_are_refused_with_their_number) {
  const auto refused = [](const std::string& from, const std::string& to) {
    return error_of_text(with_lines(to_string(some_tables()), from, to));
  };
  EXPECT_THAT(refused("key a\n", "keys a\n"), HasSubstr("tables, line 3: 'keys a' should be 'key ...'"));
  EXPECT_THAT(refused("key b", "key a"), HasSubstr("line 7: the keys are not in ascending order"));
  EXPECT_THAT(refused("table tp=4", "table tp=1"), HasSubstr("line 5: the tables of a key are not in ascending order"));
  EXPECT_THAT(refused("joined=0", "joined=2"), HasSubstr("line 4: joined=2; it must be 0 to 1"));
  EXPECT_THAT(refused("before=5,", "before=5,5,"), HasSubstr("line 4: before has 31 numbers, not 30"));
  EXPECT_THAT(refused("before=5,", "before=2000000000000000,"), HasSubstr("before has a figure beyond"));
  EXPECT_THAT(refused("before=5,", "before=-2000000000000000,"), HasSubstr("'-2000000000000000' is no whole number"));
  EXPECT_THAT(refused(" after=", " behind="), HasSubstr("should be after=..."));
  EXPECT_THAT(refused("refused no", "refused  no"), HasSubstr("no error"));
  EXPECT_THAT(refused("refused no", "refuse no"), HasSubstr("'refuse' should be joined=..."));
  EXPECT_THAT(refused("no\\\\ such", "no\\ such"), HasSubstr("not in the form in which tables are written"));
}

// Nothing that is computed with them leaves the numbers.
TEST(PricedTables, with_figures_too_large_to_compute_with_are_not_written) {
  PricedTables tables;
  PartPrices prices;
  prices.parts.resize(3);
  prices.parts[1].persistent = int64_t{1} << 52;
  tables.by_key["a"][{.rows = 1}] = {.prices = prices};
  const auto read = parse_priced_tables(to_string(tables));
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->by_key.at("a").empty());
}

}  // namespace
}  // namespace trireme::priced_tables_test

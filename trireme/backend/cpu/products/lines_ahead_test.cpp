#include "trireme/backend/cpu/products/lines_ahead.h"

#include <gtest/gtest.h>

#include <vector>

#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/backend/cpu/isa/loops.h"

namespace trireme::cpu::lines_ahead_test {
namespace {

class LinesAheadOnEveryIsa : public testing::TestWithParam<TestIsa> {
 protected:
  void SetUp() override {
    if (!GetParam().is_there()) GTEST_SKIP() << "this machine has no " << GetParam().name();
    GetParam().use();
    const int64_t rows = loops().tile_rows, columns = loops().tile_columns;
    for (int64_t i = 0; i < rows * kTerms; ++i) a_.push_back(static_cast<float>(i % 7));
    for (int64_t i = 0; i < columns * kTerms; ++i) b_.push_back(static_cast<float>(i % 5));
  }
  void TearDown() override { use_machine_isa(); }

  // A whole tile of so many terms, which asks for lines meanwhile.
  std::vector<float> tile(int64_t terms, LinesAhead* ahead) const {
    const int64_t rows = loops().tile_rows, columns = loops().tile_columns;
    std::vector<float> c(static_cast<size_t>(rows * columns));
    loops().block_tile({.rows = rows,
                        .columns = columns,
                        .terms = terms,
                        .a = a_.data(),
                        .b = b_.data(),
                        .c = c.data(),
                        .c_row = columns,
                        .ahead = ahead});
    return c;
  }

  static constexpr int64_t kTerms = 100;
  std::vector<float> a_, b_;
};

INSTANTIATE_TEST_SUITE_P(Isa, LinesAheadOnEveryIsa, testing::ValuesIn(all_test_isas()),
                         [](const auto& each) { return each.param.name(); });

TEST_P(LinesAheadOnEveryIsa, ATileAsksForItsShareAndHasTheSameBits) {
  const std::vector<float> memory(64 * 16);
  LinesAhead ahead;
  spread_over_tiles(ahead, 20, 14);  // 3 a tile
  set_lines(ahead, 1, memory.data(), 10, kLineBytes, 2);
  const std::vector<float> alone = tile(kTerms, nullptr);

  // 3, 3, 3 and 1 of each column.
  for (int64_t taken = 0; taken < 8; ++taken) {
    EXPECT_GT(ahead.blocks[1].columns, 0) << taken;
    EXPECT_EQ(tile(kTerms, &ahead), alone);
  }
  EXPECT_EQ(ahead.blocks[1].columns, 0);
  EXPECT_EQ(tile(kTerms, &ahead), alone);
}

TEST_P(LinesAheadOnEveryIsa, ATileOfFewTermsAsksForNone) {
  const std::vector<float> memory(64);
  LinesAhead ahead;
  ahead.of_tile = 3;
  add_lines(ahead, memory.data(), 4, kLineBytes, 1);

  tile(loops().tile_rows, &ahead);

  EXPECT_EQ(ahead.blocks[0].row, 0);
  EXPECT_EQ(ahead.blocks[0].columns, 1);
}

TEST_P(LinesAheadOnEveryIsa, BlocksThatAreSetAgainComeFirst) {
  const std::vector<float> memory(64);
  LinesAhead ahead;
  ahead.of_tile = 4;
  set_lines(ahead, 1, memory.data(), 4, kLineBytes, 2);
  tile(kTerms, &ahead);
  set_lines(ahead, 0, memory.data(), 2, kLineBytes, 1);

  tile(kTerms, &ahead);

  EXPECT_EQ(ahead.blocks[0].columns, 0);
  EXPECT_EQ(ahead.blocks[1].columns, 1);
}

}  // namespace
}  // namespace trireme::cpu::lines_ahead_test

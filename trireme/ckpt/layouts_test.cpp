// Checkpoints written by several ranks in one layout and read in another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/checkpoints_for_tests.h"

namespace trireme::ckpt::layouts_test {
namespace {

using testing::ElementsAre;

TEST(Checkpoint, AnyLayoutIsReadAtAnyOther) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const TempDirectory dir;
    const int world = static_cast<int>(1 + seed % 4);
    std::vector<Cut> cuts;
    cuts.push_back(random_cut("matrix", shared(filled({DType::kF32, {13, 7}}, seed)), world, seed * 10));
    cuts.push_back(random_cut("cube", shared(filled({DType::kBF16, {5, 6, 7}}, seed)), world, seed * 10 + 1));
    cuts.push_back(random_cut("vector", shared(filled({DType::kI64, {31}}, seed)), world, seed * 10 + 2));
    cuts.push_back(random_cut("scalar", shared(filled({DType::kF64, {}}, seed)), world, seed * 10 + 3));
    cuts.push_back(random_cut("empty", shared(HostTensor({DType::kF32, {0, 3}})), world, seed * 10 + 4));
    World(world).save_or_throw(dir.path(), cuts, {.step = 1});

    const Reader reader(dir.path());
    for (const Cut& cut : cuts) {
      EXPECT_TRUE(is_equal(reader.read(cut.name), *cut.whole)) << cut.name << " " << seed;
      const Cut other = random_cut(cut.name, cut.whole, world, seed * 10 + 5);
      for (const Box& box : other.boxes) {
        const HostTensor got({cut.whole->type().dtype, box.size});
        reader.read(cut.name, box, got.view());
        EXPECT_TRUE(is_equal(got, part_of(*cut.whole, box))) << cut.name << to_string(box) << " " << seed;
      }
    }
  }
}

TEST(Checkpoint, LargeTensorsCrossTheBlocksOfTheChecksums) {
  const TempDirectory dir;
  // Rows of 300,000 bytes: blocks of 1 MiB begin and end inside rows.
  const Shared whole = shared(filled({DType::kF32, {20, 75000}}, 5));
  World(2).save_or_throw(dir.path(), {{"w", whole, {{{0, 0}, {12, 75000}}, {{12, 0}, {8, 75000}}}, {0, 1}}},
                         {.step = 1});
  const Reader reader(dir.path());

  EXPECT_TRUE(is_equal(reader.read("w"), *whole));
  for (const Box& box : {Box{{3, 0}, {2, 75000}}, Box{{11, 100}, {3, 60000}}, Box{{0, 74999}, {20, 1}}}) {
    const HostTensor got({DType::kF32, box.size});
    reader.read("w", box, got.view());
    EXPECT_TRUE(is_equal(got, part_of(*whole, box))) << to_string(box);
  }
}

TEST(Checkpoint, PiecesThatDoNotCoverATensorOnceAreRefused) {
  const TempDirectory dir;
  const Shared w = shared(filled({DType::kF32, {4, 4}}, 1));
  const auto text_of = [&](const std::vector<Box>& boxes) {
    std::vector<Caught> errors;
    QuickDisk quick;
    errors = World(2).save_all(dir.path(), {{"w", w, boxes, {0, 1}}}, {.step = 1}, {&quick, &quick});
    EXPECT_EQ(errors[0].kind, ErrorKind::kInvalidArgument);
    EXPECT_EQ(errors[1].text,
              "checkpoint of step 1 is not saved: rank 0 could not commit the checkpoint: " + errors[0].text);
    EXPECT_THAT(list_directory(dir.path()), ElementsAre());
    return errors[0].text;
  };

  EXPECT_EQ(text_of({{{0, 0}, {3, 4}}, {{2, 0}, {2, 4}}}),
            "tensor 'w' f32[4,4]: chunks [0:3,0:4] and [2:4,0:4] overlap; each element must be "
            "written once");
  EXPECT_EQ(text_of({{{0, 0}, {1, 4}}, {{2, 0}, {2, 4}}}),
            "tensor 'w' f32[4,4]: its chunks hold 12 of 16 elements; each element must be written once");
}

TEST(Checkpoint, RanksThatDisagreeOnATensorAreRefused) {
  const TempDirectory dir;
  const Shared a = shared(filled({DType::kF32, {4}}, 1));
  const Shared b = shared(filled({DType::kF64, {4}}, 1));
  QuickDisk quick;

  const auto errors = World(2).save_all(dir.path(), {{"w", a, {{{0}, {2}}}, {0}}, {"w", b, {{{2}, {2}}}, {1}}},
                                        {.step = 1}, {&quick, &quick});

  EXPECT_EQ(errors[0].text, "tensor 'w' is f32[4] (param) on one rank and f64[4] (param) on another; all must agree");
}

}  // namespace
}  // namespace trireme::ckpt::layouts_test

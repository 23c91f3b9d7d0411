#include "trireme/layout/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "trireme/base/error.h"

namespace trireme::layout_test {
namespace {

std::string error_of(auto&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

TEST(Layout, replicated_cuts_nothing) {
  const Mesh mesh({{"dp", 4}});
  const Layout layout = Layout::replicated(2);

  EXPECT_TRUE(layout.is_replicated());
  EXPECT_EQ(to_string(layout, mesh), "[-, -]");
  EXPECT_EQ(local_shape({6, 5}, layout, mesh), Shape({6, 5}));
  EXPECT_EQ(layout.replica_axes(mesh), (std::vector<int>{0, 1}));
}

TEST(Layout, knows_what_each_axis_does) {
  const Mesh mesh({{"a", 2}, {"b", 3}, {"c", 2}, {"d", 5}});
  const Layout layout = parse_layout("[-, a*b] partial(sum: c)", mesh);

  EXPECT_EQ(layout.dim_cut_by(0), 1);
  EXPECT_EQ(layout.dim_cut_by(2), -1);
  EXPECT_TRUE(layout.is_partial_over(2));
  EXPECT_TRUE(layout.uses(1));
  EXPECT_FALSE(layout.uses(3));
  EXPECT_EQ(layout.cuts(1, mesh), 6);
  EXPECT_EQ(layout.replica_axes(mesh), std::vector<int>{3});
  EXPECT_EQ(layout.partial_axes(), std::vector<int>{2});
  EXPECT_FALSE(layout.is_replicated());
}

TEST(Layout, matmul_2_1_by_1_4_on_eight_devices_lies_as_documented) {
  const Mesh mesh({{"m", 2}, {"n", 4}});
  const Layout x = parse_layout("[m, -]", mesh);
  const Layout w = parse_layout("[-, n]", mesh);
  const Layout y = parse_layout("[m, n]", mesh);

  EXPECT_EQ(local_shape({256, 784}, x, mesh), Shape({128, 784}));
  EXPECT_EQ(local_shape({784, 64}, w, mesh), Shape({784, 16}));
  EXPECT_EQ(local_shape({256, 64}, y, mesh), Shape({128, 16}));
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(local_box({256, 784}, x, mesh, rank).start[0], rank / 4 * 128) << rank;
    EXPECT_EQ(local_box({784, 64}, w, mesh, rank).start[1], rank % 4 * 16) << rank;
    EXPECT_EQ(local_box({256, 64}, y, mesh, rank), (Box{{rank / 4 * 128, rank % 4 * 16}, {128, 16}}));
  }
}

TEST(Layout, order_of_axes_in_a_dimension_is_their_significance) {
  const Mesh mesh({{"dp", 2}, {"sp", 2}, {"mp", 2}});
  const Layout layout = parse_layout("[mp, sp*dp]", mesh);

  std::vector<std::vector<int64_t>> rank_of(2, std::vector<int64_t>(4));
  for (int64_t rank = 0; rank < 8; ++rank) {
    const Box box = local_box({2, 4}, layout, mesh, rank);
    rank_of[static_cast<size_t>(box.start[0])][static_cast<size_t>(box.start[1])] = rank;
  }
  const std::vector<std::vector<int64_t>> documented = {{0, 4, 2, 6}, {1, 5, 3, 7}};
  EXPECT_EQ(rank_of, documented);
}

TEST(Layout, four_by_two_and_two_by_four_of_eight_devices_are_both_exact) {
  const Mesh mesh({{"d", 8}});
  const Layout tall = parse_layout("[d.0*d.1, d.2]", mesh);
  const Layout wide = parse_layout("[d.0, d.1*d.2]", mesh);

  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(local_box({8, 8}, tall, mesh, rank).start, Shape({rank / 2 * 2, rank % 2 * 4}));
    EXPECT_EQ(local_box({8, 8}, wide, mesh, rank).start, Shape({rank / 4 * 4, rank % 4 * 2}));
  }
}

Layout random_layout(std::mt19937_64& random, const Mesh& mesh, int rank) {
  Layout out = Layout::replicated(rank);
  const auto reduction = static_cast<Reduction>(random() % 3);
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const int place = static_cast<int>(random() % static_cast<uint64_t>(rank + 2));
    if (place == rank) {
      out.add_partial(axis, reduction);
    } else if (place < rank) {
      auto& dim = out.dims[static_cast<size_t>(place)];
      dim.insert(dim.begin() + static_cast<int64_t>(random() % (dim.size() + 1)), axis);
    }
  }
  return out;
}

TEST(Layout, print_and_parse_are_inverses_on_random_layouts) {
  const Mesh mesh({{"dp", 8}, {"tp", 6}, {"one", 1}, {"mp", 5}});
  std::mt19937_64 random(11);
  for (int round = 0; round < 500; ++round) {
    const int rank = static_cast<int>(random() % 5);
    const Layout layout = random_layout(random, mesh, rank);
    const std::string text = to_string(layout, mesh);

    EXPECT_EQ(parse_layout(text, mesh, rank), layout) << text;
    EXPECT_EQ(to_string(parse_layout(text, mesh), mesh), text);
  }
}

TEST(Layout, prints_prime_parts_of_an_axis_by_its_name) {
  const Mesh mesh({{"dp", 4}, {"tp", 2}, {"sp", 3}, {"mp", 4}});

  const Layout layout = parse_layout("[dp.0*dp.1,tp*sp, -]partial( sum : mp.0*mp.1 )", mesh, 3);
  EXPECT_EQ(to_string(layout, mesh), "[dp, tp*sp, -] partial(sum: mp)");
  EXPECT_EQ(to_string(parse_layout("[dp.1*dp.0]", mesh), mesh), "[dp.1*dp.0]");
  EXPECT_EQ(to_string(parse_layout("[] partial(max: mp.1)", mesh), mesh), "[] partial(max: mp.1)");
}

TEST(Layout, an_axis_of_size_one_cuts_nothing) {
  const Mesh mesh({{"dp", 1}, {"tp", 2}});

  EXPECT_EQ(parse_layout("[dp, tp]", mesh), parse_layout("[-, tp]", mesh));
}

TEST(Layout, equal_layouts_have_equal_hashes_and_near_ones_differ) {
  const Mesh mesh({{"a", 2}, {"b", 2}});
  std::vector<size_t> hashes;
  for (const char* text : {"[-, -]", "[a, -]", "[-, a]", "[a*b, -]", "[b*a, -]", "[a, b]", "[-, -] partial(sum: a)",
                           "[-, -] partial(max: a)", "[-]"}) {
    EXPECT_EQ(hash(parse_layout(text, mesh)), hash(parse_layout(text, mesh)));
    hashes.push_back(hash(parse_layout(text, mesh)));
  }

  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end());
}

TEST(Layout, boxes_of_random_layouts_cover_each_element_once_per_replica) {
  const Mesh mesh({{"a", 2}, {"b", 3}, {"c", 2}});
  std::mt19937_64 random(3);
  for (int round = 0; round < 100; ++round) {
    const Layout layout = random_layout(random, mesh, 2);
    const Shape whole{12, 12};
    std::vector<int> count(144, 0);
    for (int64_t rank = 0; rank < mesh.devices(); ++rank) {
      const Box box = local_box(whole, layout, mesh, rank);
      for (int64_t i = 0; i < box.size[0]; ++i) {
        for (int64_t j = 0; j < box.size[1]; ++j) {
          ++count[static_cast<size_t>((box.start[0] + i) * 12 + box.start[1] + j)];
        }
      }
    }

    const int64_t copies = mesh.devices() / (layout.cuts(0, mesh) * layout.cuts(1, mesh));
    EXPECT_EQ(count, std::vector<int>(144, static_cast<int>(copies))) << to_string(layout, mesh);
  }
}

TEST(LayoutErrors, a_cut_that_does_not_divide_names_the_cuts_that_would) {
  const Mesh mesh({{"dp", 2}, {"tp", 4}});

  EXPECT_EQ(error_of([&] {
              check(parse_layout("[-, tp]", mesh), {4, 10}, mesh, "w_qkv");
            }),
            "mesh axis 'tp' has size 4, which does not divide dim 1 of 'w_qkv' (size 10). Use an "
            "axis of 1, 2, 5 or 10, or pad to 12.");
  EXPECT_EQ(error_of([&] { check(parse_layout("[dp*tp]", mesh), {12}, mesh, "x"); }),
            "mesh axes 'dp*tp' have size 8, which does not divide dim 0 of 'x' (size 12). Use an "
            "axis of 1, 2, 3, 4, 6 or 12, or pad to 16.");
  EXPECT_EQ(error_of([&] { check(parse_layout("[dp*tp]", mesh), {60}, mesh, "x"); }),
            "mesh axes 'dp*tp' have size 8, which does not divide dim 0 of 'x' (size 60). Use an "
            "axis of 4, 5, 6, 10, 12 or 15, or pad to 64.");
  EXPECT_EQ(error_of([&] { check(parse_layout("[tp]", mesh), {7}, mesh, "x"); }),
            "mesh axis 'tp' has size 4, which does not divide dim 0 of 'x' (size 7). Use an axis of "
            "1 or 7, or pad to 8.");
}

TEST(LayoutErrors, contracts_6_5_2_an_axis_used_twice_is_refused) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});

  EXPECT_EQ(error_of([&] {
              check(parse_layout("[dp, dp]", mesh), {4, 4}, mesh, "x");
            }),
            "layout [dp, dp] of 'x' uses mesh axis 'dp' twice; an axis cuts one dimension once, or "
            "is partial");
  EXPECT_EQ(error_of([&] {
              check(parse_layout("[dp, -] partial(sum: dp)", mesh), {4, 4}, mesh, "x");
            }),
            "layout [dp, -] partial(sum: dp) of 'x' uses mesh axis 'dp' twice; an axis cuts one "
            "dimension "
            "once, or is partial");
}

TEST(LayoutErrors, two_kinds_of_partial_are_refused) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});

  EXPECT_EQ(error_of([&] { check(parse_layout("[-] partial(sum: dp) partial(max: tp)", mesh), {4}, mesh, "x"); }),
            "layout [-] partial(sum: dp) partial(max: tp) of 'x' is partial in two ways, sum over "
            "'dp' and max over 'tp'; the result would depend on their order: reduce one of them "
            "first");
}

TEST(LayoutErrors, another_number_of_dimensions_is_refused) {
  const Mesh mesh({{"dp", 2}});

  EXPECT_EQ(error_of([&] {
              check(parse_layout("[dp]", mesh), {4, 4}, mesh, "x");
            }),
            "layout [dp] of 'x' has 1 dimensions, but its shape [4,4] has 2; give one entry per "
            "dimension, '-' where it is whole");
  EXPECT_FALSE(fits(parse_layout("[dp]", mesh), {4, 4}, mesh));
  EXPECT_EQ(error_of([&] { parse_layout("[dp]", mesh, 2); }),
            "layout '[dp]' has 1 dimensions where 2 are expected; give one entry per dimension, '-' "
            "where it is whole");
}

TEST(LayoutErrors, text_that_is_no_layout_says_why) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});
  const auto parse = [&](const char* text) { return error_of([&] { parse_layout(text, mesh); }); };

  EXPECT_EQ(parse("dp"), "'dp' is not a layout; expected something like [dp, tp*sp, -] partial(sum: mp)");
  EXPECT_EQ(parse(""), "'' is not a layout; expected something like [dp, tp*sp, -] partial(sum: mp)");
  EXPECT_EQ(parse("[dp, ]"), "'[dp, ]' is not a layout: nothing after the last ','; write '-' for a whole dimension");
  EXPECT_EQ(parse("[dq]"), "no mesh axis named 'dq' in mesh 'dp=2,tp=2'. Did you mean 'dp'?");
  EXPECT_EQ(parse("[dp] sum"), "'[dp] sum' is not a layout: expected 'partial(sum: axis)' after ']', found 'sum'");
  EXPECT_EQ(parse("[dp] partial(som: tp)"),
            "'[dp] partial(som: tp)' is not a layout: no reduction named 'som'. Did you mean 'sum'?");
}

TEST(LayoutErrors, random_text_is_parsed_or_refused_but_never_crashes) {
  const Mesh mesh({{"dp", 4}, {"tp", 2}});
  const std::string alphabet = "[]-,* dpt.01partial(sum:)x";
  std::mt19937_64 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (uint64_t n = random() % 20; n > 0; --n) text += alphabet[random() % alphabet.size()];
    try {
      const Layout layout = parse_layout(text, mesh);
      EXPECT_EQ(parse_layout(to_string(layout, mesh), mesh), layout) << text;
    } catch (const Error& e) {
      EXPECT_NE(e.kind(), ErrorKind::kInternal) << text << ": " << e.what();
    }
  }
}

}  // namespace
}  // namespace trireme::layout_test

#include "trireme/mesh/mesh.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "trireme/base/error.h"

namespace trireme::mesh_test {
namespace {

std::string error_of(auto&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

TEST(Mesh, default_is_one_device_without_axes) {
  const Mesh mesh;

  EXPECT_EQ(mesh.devices(), 1);
  EXPECT_EQ(mesh.axes(), 0);
  EXPECT_EQ(to_string(mesh), "");
  EXPECT_EQ(mesh.group_of(0, {}), std::vector<int64_t>{0});
}

TEST(Mesh, keeps_a_users_axis_as_its_prime_factors) {
  const Mesh mesh({{"dp", 12}, {"tp", 5}, {"one", 1}});

  ASSERT_EQ(mesh.axes(), 4);
  EXPECT_EQ(mesh.axis(0), (MeshAxis{"dp.0", 2}));
  EXPECT_EQ(mesh.axis(1), (MeshAxis{"dp.1", 2}));
  EXPECT_EQ(mesh.axis(2), (MeshAxis{"dp.2", 3}));
  EXPECT_EQ(mesh.axis(3), (MeshAxis{"tp", 5}));
  EXPECT_EQ(mesh.devices(), 60);
  EXPECT_EQ(mesh.find("dp"), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(mesh.find("dp.1"), std::vector<int>{1});
  EXPECT_EQ(mesh.find("one"), std::vector<int>{});
}

TEST(Mesh, last_axis_varies_fastest_with_the_rank) {
  const Mesh mesh({{"a", 2}, {"b", 2}, {"c", 2}});

  EXPECT_EQ(mesh.coordinates(6), (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(mesh.rank_of(std::vector<int64_t>{1, 0, 0}), 4);
  EXPECT_EQ(mesh.stride(0), 4);
}

TEST(Mesh, rank_and_coordinates_are_inverses_on_meshes_of_many_sizes) {
  for (const char* text : {"a=2", "a=3,b=2", "a=4,b=3", "a=6,b=2", "a=8", "a=5,b=1,c=7"}) {
    const Mesh mesh = parse_mesh(text);
    for (int64_t rank = 0; rank < mesh.devices(); ++rank) {
      EXPECT_EQ(mesh.rank_of(mesh.coordinates(rank)), rank) << text;
    }
  }
}

TEST(Mesh, matmul_2_4_by_4_1_reduces_in_groups_0123_and_4567) {
  const Mesh mesh({{"rows", 2}, {"inner", 4}});

  const std::vector<std::vector<int64_t>> expected = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  EXPECT_EQ(mesh.groups(mesh.find("inner")), expected);
}

TEST(Mesh, transposed_weight_4_2_by_1_2_puts_ranks_0_and_1_in_a_group) {
  const Mesh mesh({{"rows", 4}, {"inner", 2}});

  EXPECT_EQ(mesh.group_of(0, mesh.find("inner")), (std::vector<int64_t>{0, 1}));
}

TEST(Mesh, group_is_ordered_with_the_first_listed_axis_most_significant) {
  const Mesh mesh({{"dp", 2}, {"sp", 2}, {"mp", 2}});

  EXPECT_EQ(mesh.group_of(0, std::vector<int>{1, 0}), (std::vector<int64_t>{0, 4, 2, 6}));
  EXPECT_EQ(mesh.group_of(7, std::vector<int>{1, 0}), (std::vector<int64_t>{1, 5, 3, 7}));
  EXPECT_EQ(mesh.index_along(4, std::vector<int>{1, 0}), 1);
}

TEST(Mesh, groups_hold_each_rank_once_at_its_index) {
  const Mesh mesh({{"a", 6}, {"b", 2}, {"c", 3}});
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> axes(static_cast<size_t>(mesh.axes()));
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), random);
    axes.resize(random() % (axes.size() + 1));

    std::vector<int> seen(static_cast<size_t>(mesh.devices()), 0);
    for (const auto& group : mesh.groups(axes)) {
      for (size_t k = 0; k < group.size(); ++k) {
        ++seen[static_cast<size_t>(group[k])];
        EXPECT_EQ(mesh.index_along(group[k], axes), static_cast<int64_t>(k));
        EXPECT_EQ(mesh.group_of(group[k], axes), group);
      }
    }
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(mesh.devices()), 1));
  }
}

TEST(Mesh, print_and_parse_are_inverses) {
  for (const char* text : {"", "dp=4,tp=2", "a=1", "x_1=12,y=7,z=64"}) {
    EXPECT_EQ(to_string(parse_mesh(text)), text);
  }
  EXPECT_EQ(parse_mesh(" dp = 4 , tp=2 "), Mesh({{"dp", 4}, {"tp", 2}}));
}

TEST(Mesh, prints_all_factors_of_an_axis_as_its_name) {
  const Mesh mesh({{"dp", 4}, {"tp", 2}});

  EXPECT_EQ(print_axes(std::vector<int>{0, 1}, mesh), "dp");
  EXPECT_EQ(print_axes(std::vector<int>{2, 0, 1}, mesh), "tp*dp");
  EXPECT_EQ(print_axes(std::vector<int>{1, 0}, mesh), "dp.1*dp.0");
  EXPECT_EQ(print_axes(std::vector<int>{0, 2}, mesh), "dp.0*tp");
  EXPECT_EQ(print_axes({}, mesh), "-");
  EXPECT_EQ(parse_axes("dp.1*dp.0*tp", mesh), (Axes{1, 0, 2}));
  EXPECT_EQ(parse_axes("-", mesh), Axes{});
}

TEST(AxesForCuts, both_4_by_2_and_2_by_4_of_eight_devices_are_exact) {
  const Mesh mesh({{"d", 8}});

  const std::vector<Axes> four_two = {{0, 1}, {2}};
  const std::vector<Axes> two_four = {{0}, {1, 2}};
  EXPECT_EQ(axes_for_cuts(std::vector<int64_t>{4, 2}, mesh), four_two);
  EXPECT_EQ(axes_for_cuts(std::vector<int64_t>{2, 4}, mesh), two_four);
}

TEST(AxesForCuts, leaves_the_most_significant_axes_as_replicas) {
  const Mesh mesh({{"d", 8}});

  const std::vector<Axes> expected = {{1}, {}, {2}};
  EXPECT_EQ(axes_for_cuts(std::vector<int64_t>{2, 1, 2}, mesh), expected);
}

TEST(AxesForCuts, finds_the_primes_wherever_they_stand) {
  const Mesh mesh({{"a", 2}, {"b", 3}, {"c", 2}});

  const std::vector<Axes> expected = {{0, 2}, {1}};
  EXPECT_EQ(axes_for_cuts(std::vector<int64_t>{4, 3}, mesh), expected);
}

TEST(MeshErrors, say_what_is_wrong_and_what_would_be_right) {
  EXPECT_EQ(error_of([] { Mesh({{"dp", 0}}); }), "mesh: axis 'dp' has size 0; sizes must be 1 or more");
  EXPECT_EQ(error_of([] {
              Mesh({{"d p", 2}});
            }),
            "mesh: 'd p' is not an axis name; use letters, digits and '_', a letter first");
  EXPECT_EQ(error_of([] { Mesh({{"None", 2}}); }), "mesh: the axis name 'None' is reserved; choose another");
  EXPECT_EQ(error_of([] {
              Mesh({{"dp", 2}, {"dp", 4}});
            }),
            "mesh: axis 'dp' is named twice; every axis needs a name of its own");
  EXPECT_EQ(error_of([] {
              Mesh({{"a", 1 << 30}, {"b", 1 << 30}});
            }),
            "mesh: 'a=1073741824,b=1073741824' has more than 2^40 devices");
  EXPECT_EQ(error_of([] { parse_mesh("dp=9223372036854775783"); }),  // a prime: its factors are not looked for
            "mesh: 'dp=9223372036854775783' has more than 2^40 devices");
  EXPECT_EQ(error_of([] {
              Mesh({{"dp", 4}, {"tp", 2}}).find("tpp");
            }),
            "no mesh axis named 'tpp' in mesh 'dp=4,tp=2'. Did you mean 'tp'?");
  EXPECT_EQ(error_of([] { parse_mesh("dp=4,tp"); }),
            "'dp=4,tp' is not a mesh: 'tp' has no size; expected something like dp=4,tp=2");
  EXPECT_EQ(error_of([] { parse_mesh("dp=4x"); }),
            "'dp=4x' is not a mesh: '4x' is not a size; expected something like dp=4,tp=2");
}

TEST(MeshErrors, cuts_that_the_mesh_cannot_make_name_its_devices) {
  const Mesh mesh({{"d", 8}});

  EXPECT_EQ(error_of([&] {
              axes_for_cuts(std::vector<int64_t>{4, 4}, mesh);
            }),
            "cuts (4,4) need 16 devices, but mesh 'd=8' has 8; make the product of the cuts divide 8");
  EXPECT_EQ(error_of([&] {
              axes_for_cuts(std::vector<int64_t>{3, 1}, mesh);
            }),
            "cuts (3,1): mesh 'd=8' of 8 devices has no axes left for a cut of 3; make the product of "
            "the cuts divide 8");
  EXPECT_EQ(error_of([&] { axes_for_cuts(std::vector<int64_t>{0}, mesh); }),
            "cuts (0): a cut of 0; cuts must be 1 or more");
}

}  // namespace
}  // namespace trireme::mesh_test

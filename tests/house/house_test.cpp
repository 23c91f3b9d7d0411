// The source tree keeps its own rules; and each check finds what it is there to find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/house/checks.h"

namespace house::house_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<SourceFile>& tree() {
  static const std::vector<SourceFile> files = read_tree(TRIREME_SOURCE_DIR);
  return files;
}

const std::string& text_of(std::string_view path) {
  static const std::string kMissing;
  const auto file = std::ranges::find(tree(), path, &SourceFile::path);
  return file == tree().end() ? kMissing : file->text;
}

std::string report(std::string_view check, std::vector<std::string> findings) {
  std::string text;
  for (const std::string& finding :
       without_exceptions(std::move(findings), text_of("tests/house/exceptions.txt"), check)) {
    text += finding + "\n";
  }
  return text;
}

TEST(House, the_tree_is_read_whole) {
  EXPECT_NE(text_of("trireme/base/error.h"), "");
  EXPECT_NE(text_of("CMakeLists.txt"), "");
  EXPECT_NE(text_of("tools/install_deps"), "");
  EXPECT_GT(tree().size(), 100U);
}

TEST(House, folders_include_only_folders_of_their_row) {
  EXPECT_EQ(report("layers", check_layers(parse_layers(text_of("tools/layers.txt")), tree())), "");
}

TEST(House, what_one_device_has_is_asked_through_the_seam_of_all) {
  EXPECT_EQ(report("device_seam", check_device_seam(tree())), "");
}

TEST(House, no_file_and_no_room_of_a_folder_includes_itself_by_way_of_others) {
  EXPECT_EQ(report("circles", check_circles(tree())), "");
}

TEST(House, headers_include_what_they_use) {
  EXPECT_EQ(report("own_includes", check_own_includes(tree())), "");
}

TEST(House, every_op_is_in_the_list) {
  EXPECT_EQ(report("ops", check_op_list(tree())), "");
}

TEST(House, ops_are_not_named_where_a_facet_can_be_asked) {
  EXPECT_EQ(report("op_names", check_op_names(tree())), "");
}

TEST(House, text_is_read_where_it_enters) {
  EXPECT_EQ(report("parsers", check_parsers(tree())), "");
}

TEST(House, the_library_uses_no_words_of_a_program) {
  EXPECT_EQ(report("words", check_words(tree())), "");
}

TEST(House, headers_have_a_guard_and_a_first_sentence) {
  EXPECT_EQ(report("headers", check_headers(tree())), "");
}

TEST(House, headers_of_sources_and_of_tests_are_included_by_these_alone) {
  EXPECT_EQ(report("private_headers", check_private_headers(tree())), "");
}

TEST(House, components_of_the_log_have_lines) {
  EXPECT_EQ(report("log_components", check_log_components(tree())), "");
}

TEST(House, readmes_name_what_is_there) {
  EXPECT_EQ(report("readmes", check_readmes(parse_layers(text_of("tools/layers.txt")), tree())), "");
}

TEST(House, files_stay_within_their_budget_of_lines) {
  EXPECT_EQ(report("sizes", check_sizes(tree())), "");
}

TEST(House, functions_stay_within_their_budget_of_lines) {
  EXPECT_EQ(report("functions", check_functions(tree())), "");
}

TEST(House, tests_keep_differences_that_are_no_numbers) {
  EXPECT_EQ(report("worst", check_worst(tree())), "");
}

TEST(House, tests_stand_in_a_namespace_of_their_file) {
  EXPECT_EQ(report("test_namespaces", check_test_namespaces(tree())), "");
}

TEST(House, files_that_comments_and_documents_name_are_there) {
  EXPECT_EQ(report("named_files", check_named_files(tree())), "");
}

TEST(House, text_is_ascii_finished_and_of_no_one_machine) {
  EXPECT_EQ(report("text", check_text(tree())), "");
}

TEST(HouseChecks, a_row_may_name_only_rows_above_it) {
  const LayerTable table = parse_layers("# head\nbase:\nir: base op\nop: base ir\ntop: *\n");

  ASSERT_THAT(table.rows, SizeIs(4));
  EXPECT_THAT(table.findings, ElementsAre(HasSubstr("tools/layers.txt:3: 'ir' may not include 'op'")));
  EXPECT_THAT(table.rows[2].may_include, ElementsAre("base", "ir"));
  EXPECT_THAT(table.rows[3].may_include, ElementsAre("base", "ir", "op"));
}

TEST(HouseChecks, an_include_of_a_folder_outside_the_row_is_found) {
  const LayerTable table = parse_layers("base:\nir: base\nop: base ir\n");
  const std::vector<SourceFile> files{
      {"trireme/ir/graph.h", "#include \"trireme/base/error.h\"\n#include \"trireme/op/op_def.h\"\n"},
      {"trireme/ir/graph_test.cpp", "#include \"trireme/op/op_def.h\"\n"},
      {"trireme/new/file.cpp", "\n"}};

  EXPECT_THAT(check_layers(table, files),
              ElementsAre("trireme/ir/graph.h:2: 'ir' may not include 'op' (tools/layers.txt)",
                          "trireme/new: the folder has no row in tools/layers.txt"));
}

TEST(HouseChecks, an_include_of_one_devices_folder_is_found) {
  const std::string source = "#include \"trireme/backend/device.h\"\n#include \"trireme/backend/cpu/kernels.h\"\n";
  const std::vector<SourceFile> files{{"cli/bench.cpp", source},
                                      {"trireme/train/loop/run.cpp", source},
                                      {"trireme/train/loop/run_test.cpp", source},
                                      {"trireme/backend/cuda/device.cpp", source},
                                      {"tests/equivalence/oracle.cpp", source}};

  EXPECT_THAT(check_device_seam(files),
              ElementsAre(HasSubstr("cli/bench.cpp:2: 'trireme/backend/cpu/kernels.h' is of one device"),
                          HasSubstr("trireme/train/loop/run.cpp:2: ")));
}

TEST(HouseChecks, circles_of_files_and_of_rooms_are_found) {
  const std::vector<SourceFile> files{
      {"trireme/ir/a.cpp", "#include \"trireme/ir/a.h\"\n#include \"trireme/ir/b.h\"\n"},
      {"trireme/ir/b.h", "#include \"trireme/ir/c.h\"\n"},
      {"trireme/ir/c.cpp", "#include \"trireme/ir/a.h\"\n"},
      {"trireme/ir/a_test.cpp", "#include \"trireme/ir/c.h\"\n"},
      {"trireme/op/x/one.h", "#include \"trireme/op/y/two.h\"\n"},
      {"trireme/op/y/other.h", "#include \"trireme/op/x/more.h\"\n#include \"trireme/ir/a.h\"\n"}};

  EXPECT_THAT(check_circles(files),
              ElementsAre("trireme/ir/a: includes itself by way of others: trireme/ir/a -> trireme/ir/b -> "
                          "trireme/ir/c -> trireme/ir/a",
                          "trireme/op/x: includes itself by way of others: trireme/op/x -> trireme/op/y -> "
                          "trireme/op/x"));
}

TEST(HouseChecks, what_a_header_uses_and_does_not_include_is_found) {
  const std::vector<SourceFile> files{
      {"trireme/a/one.h", "#include <vector>\nstruct [[nodiscard]] One {\n  enum class Kind { kA };\n};\n"},
      {"trireme/a/two.h", "#include \"trireme/a/one.h\"\nstruct Later;\nstd::vector<One> two(Later, One::Kind);\n"},
      {"trireme/b/later.h",
       "// std::map\nstruct Later {\n  One one;\n  One two;\n};\nint64_t size(std::string_view);\n"},
      {"trireme/b/more.h",
       "std::pmr::list<int> x; fmt::format(3); template <class Two> bool is(Two, std::is_same_v<int>);\n"},
      {"trireme/b/more.cpp", "One one;\n"}};

  EXPECT_THAT(check_own_includes(files),
              ElementsAre("trireme/b/later.h:3: 'One' needs \"trireme/a/one.h\", which it does not include",
                          "trireme/b/later.h:6: 'int64_t' needs <cstdint>, which it does not include",
                          "trireme/b/later.h:6: 'string_view' needs <string_view>, which it does not include",
                          HasSubstr("trireme/b/more.h:1: 'pmr::list' needs a row of tests/house"),
                          "trireme/b/more.h:1: 'fmt' needs <fmt/...>, which it does not include",
                          HasSubstr("'is_same_v' needs <type_traits>")));
}

TEST(HouseChecks, an_op_missing_from_the_list_is_found) {
  const std::vector<SourceFile> files{
      {"trireme/ops/add.cpp", "namespace ops {\nextern const OpDef add{\"add\"};\nextern const OpDef sub{};\n}\n"},
      {"trireme/ops/op_list.def", "// list\nOP(add)\n"}};

  EXPECT_THAT(check_op_list(files), ElementsAre("trireme/ops/add.cpp:3: op 'sub' is not in trireme/ops/op_list.def"));
}

TEST(HouseChecks, an_op_named_outside_its_places_is_found) {
  const std::string_view list = "// list\nOP(matmul)\nOP(relu)\n";
  const std::string source =
      "// \"matmul\"\n"
      "if (node.op->name == \"matmul\") return;\n"
      "field(\"relu\", &Attrs::relu); name = \"relu_\"; R\"(matmul)\";\n"
      "rule = \"*/mlp/relu#1\";\n";
  const std::vector<SourceFile> files{{"trireme/ops/op_list.def", std::string(list)},
                                      {"trireme/ops/product/matmul.cpp", source},
                                      {"trireme/backend/cpu/products/matmul.cpp", source},
                                      {"trireme/pass/fuse.cpp", source},
                                      {"trireme/pass/fuse_test.cpp", source},
                                      {"tests/multi/a.cpp", source}};

  EXPECT_THAT(check_op_names(files), ElementsAre(HasSubstr("trireme/pass/fuse.cpp:2: 'matmul' is named"),
                                                 HasSubstr("trireme/pass/fuse.cpp:4: 'relu' is named")));
}

TEST(HouseChecks, a_parser_called_below_the_border_is_found) {
  const std::string source =
      "Mesh parse_mesh(std::string_view text);\n"
      "std::vector<int> parse_axes(std::string_view text) {\n"
      "  // parse_mesh(text)\n"
      "  return parse_axes(text);\n"
      "}\n"
      "const Mesh mesh = parse_mesh(parallel.mesh); reparse_mesh(1); &parse_mesh;\n";
  const std::vector<SourceFile> files{{"trireme/parallel/semi_auto.cpp", source},
                                      {"trireme/parallel/strategy/strategy_text.cpp", source},
                                      {"trireme/parallel/semi_auto_test.cpp", source},
                                      {"tests/multi/a.cpp", source}};

  EXPECT_THAT(check_parsers(files), ElementsAre(HasSubstr("trireme/parallel/semi_auto.cpp:4: 'parse_axes' is called"),
                                                HasSubstr("trireme/parallel/semi_auto.cpp:6: 'parse_mesh' is called")));
}

TEST(HouseChecks, comments_and_literals_are_blanked_and_lines_stay) {
  EXPECT_EQ(without_comments_and_literals("a \"b\\\"c\" d // e\nf /* g\nh */ 1'000 'i' R\"x(j)\"\n)x\" k"),
            "a        d     \nf     \n     1'000            \n    k");
}

TEST(HouseChecks, words_of_a_program_are_found_outside_comments_and_members) {
  const std::vector<SourceFile> files{{"trireme/ir/graph.cpp",
                                       "// getenv\n"
                                       "auto x = std::getenv(\"A\");\n"
                                       "engine.abort(1); void abort(int); Engine::abort(2);\n"
                                       "std::abort();\n"
                                       "  exit(1);\n"
                                       "#define SUM(a, b) a + b\n"
                                       "#define TRIREME_LOG\n"
                                       "log << \"printf(\";\n"},
                                      {"cli/main.cpp", "exit(1);\n"},
                                      {"trireme/ir/graph_test.cpp", "exit(1);\n"}};

  EXPECT_THAT(check_words(files), ElementsAre(HasSubstr("graph.cpp:2: 'getenv'"), HasSubstr("graph.cpp:4: 'abort'"),
                                              HasSubstr("graph.cpp:5: 'exit'"), HasSubstr("graph.cpp:6: macro 'SUM'")));
}

TEST(HouseChecks, headers_without_guard_or_sentence_are_found) {
  const std::vector<SourceFile> files{{"trireme/a/good.h", "// What it is.\n#pragma once\n"},
                                      {"trireme/a/bare.h", "#include <vector>\nusing namespace std;\n"}};

  EXPECT_THAT(check_headers(files), ElementsAre(HasSubstr("bare.h:1: no '#pragma once'"),
                                                HasSubstr("bare.h:1: no sentence"), HasSubstr("bare.h:2:")));
}

TEST(HouseChecks, private_headers_that_others_include_are_found) {
  const std::string both = "#include \"trireme/a/b_impl.h\"\n#include \"trireme/a/c_for_tests.h\"\n";
  const std::vector<SourceFile> files{{"trireme/a/a.h", "#ifdef X\n#include \"trireme/a/b_impl.h\"\n#endif\n" + both},
                                      {"trireme/a/a.cpp", both},
                                      {"trireme/a/d_impl.h", both},
                                      {"trireme/a/d_for_tests.h", both},
                                      {"trireme/a/a_test.cpp", both},
                                      {"tests/multi/a.h", both}};

  EXPECT_THAT(check_private_headers(files),
              ElementsAre("trireme/a/a.h:4: 'trireme/a/b_impl.h' is not installed, and this header is",
                          "trireme/a/a.h:5: 'trireme/a/c_for_tests.h' is for tests",
                          "trireme/a/a.cpp:2: 'trireme/a/c_for_tests.h' is for tests",
                          "trireme/a/d_impl.h:2: 'trireme/a/c_for_tests.h' is for tests"));
}

TEST(HouseChecks, components_of_the_log_that_are_not_listed_or_have_no_line_are_found) {
  const std::vector<SourceFile> files{
      {"trireme/base/log.cpp", "const char* level[]{\"warn\"};\nstd::array<2> kComponents{\"comm\", \"plan\"};\n"},
      {"trireme/ir/a.cpp",
       "TRIREME_LOG(\n    kWarn, \"plan\",\n    \"x\");\nif (log_on(kDebug, \"graph\")) f(\"y\");\n"},
      {"trireme/ir/a_test.cpp", "TRIREME_LOG(kWarn, \"comm\", \"x\");\n"}};

  EXPECT_THAT(check_log_components(files),
              ElementsAre("trireme/ir/a.cpp:4: 'graph' is no component of trireme/base/log.cpp",
                          "trireme/base/log.cpp:1: no line of the log is of component 'comm'"));
}

TEST(HouseChecks, what_a_readme_names_and_is_not_there_is_found) {
  const LayerTable table = parse_layers("base:\nir: base\nop: base ir\n");
  const std::vector<SourceFile> files{
      {"trireme/ir/a/README.md", "May include: everything.\n"},
      {"trireme/ir/README.md", "# `gone`\n\nMay include: base.\n\n| `a/` | `b`, `c.def`, `a/b` | `Graph`, `op/x` |\n"},
      {"trireme/ir/a/b_impl.h", ""},
      {"trireme/ir/c.def", ""},
      {"trireme/op/README.md", "May include: base.\n| `x`, `y` | `b` | `ir/b` |\n"},
      {"trireme/op/x.cpp", ""}};

  EXPECT_THAT(check_readmes(table, files),
              ElementsAre("trireme/op/README.md:1: by tools/layers.txt it may include: base, ir",
                          "trireme/op/README.md:2: 'y' is no file and no room of the folder",
                          "trireme/op/README.md:2: 'b' is no file and no room of the folder",
                          "trireme/op/README.md:2: 'ir/b' is no file and no room of the folder"));
}

TEST(HouseChecks, a_line_too_many_is_found) {
  std::string header, source;
  for (int i = 0; i < 250; ++i) header += "x\n";
  for (int i = 0; i < 500; ++i) source += "x\n";

  EXPECT_THAT(check_sizes(std::vector<SourceFile>{{"a.h", header}, {"a.cpp", source}}), IsEmpty());
  EXPECT_THAT(check_sizes(std::vector<SourceFile>{{"a.h", header + "x\n"}, {"a.cpp", source + "x\n"}}),
              ElementsAre("a.h:251: longer than 250 lines", "a.cpp:501: longer than 500 lines"));
}

TEST(HouseChecks, a_function_too_long_is_found) {
  const auto function = [](int lines) {
    std::string text = "namespace a {\nvoid f(int a,\n       int b) {\n";
    for (int i = 0; i < lines; ++i) text += "  g();\n";
    return text + "}\n}  // namespace a\n";
  };

  EXPECT_THAT(check_functions(std::vector<SourceFile>{{"trireme/a.cpp", function(58)}}), IsEmpty());
  EXPECT_THAT(check_functions(std::vector<SourceFile>{{"trireme/a.cpp", function(59)}}),
              ElementsAre("trireme/a.cpp:3: a function of 61 lines; 60 is the limit"));
}

TEST(HouseChecks, a_maximum_of_differences_is_found) {
  const std::vector<SourceFile> files{{"trireme/ir/a_test.cpp",
                                       "worst = std::max(worst, std::fabs(a - b));\n"
                                       "largest =\n"
                                       "    std::max(largest,\n"
                                       "             abs(x));\n"
                                       "size = std::max(size, n);\n"
                                       "worst = worse(worst, std::fabs(a - b));\n"},
                                      {"trireme/ir/a.cpp", "worst = std::max(worst, std::fabs(a - b));\n"}};

  EXPECT_THAT(check_worst(files),
              ElementsAre(HasSubstr("trireme/ir/a_test.cpp:1: 'std::max'"), HasSubstr("a_test.cpp:4: ")));
}

TEST(HouseChecks, tests_outside_a_namespace_of_their_file_are_found) {
  const std::string test = "namespace {\nTEST(A, b) {}\n}\n";
  const std::vector<SourceFile> files{{"trireme/ir/a_test.cpp", "namespace trireme {\n" + test + "}\n"},
                                      {"trireme/ir/b_test.cpp", "namespace trireme::b_test {\n" + test + "}\n"},
                                      {"trireme/ir/c_test.cpp", "namespace trireme {\nint no_test;\n}\n"},
                                      {"tests/house/b_test.cpp", "namespace ab_test {\n" + test + "}\n"}};

  EXPECT_THAT(check_test_namespaces(files),
              ElementsAre(HasSubstr("trireme/ir/a_test.cpp:1: "), HasSubstr("tests/house/b_test.cpp:1: ")));
}

TEST(HouseChecks, a_named_file_that_is_not_there_is_found) {
  const std::vector<SourceFile> files{
      {"trireme/exec/plan.h", "// See plan.cpp, disk/blocks.h, ir/graph.h and gone.h.\n"},
      {"trireme/exec/plan.cpp", "int x = 1;  // as moved/plan.h says\nconst char* y = \"none.h\";\n"},
      {"trireme/exec/disk/blocks.h", "// plan.h; graph.h is of another folder\n"},
      {"trireme/ir/graph.h", ""},
      {"docs/a.md", "In `exec/plan.h`, not in `exec/graph.h`; x.cpp is any.\n"}};
  EXPECT_THAT(
      check_named_files(files),
      ElementsAre("trireme/exec/plan.h:1: 'gone.h' is no file", "trireme/exec/plan.cpp:1: 'moved/plan.h' is no file",
                  "trireme/exec/disk/blocks.h:1: 'graph.h' is no file", "docs/a.md:1: 'exec/graph.h' is no file"));
}

TEST(HouseChecks, text_that_is_not_ascii_or_not_finished_is_found) {
  const std::string later = "TO", here = "/ho";
  const std::vector<SourceFile> files{{"a.md", "fine\ncaf\xc3\xa9\nblank \n// " + later + "DO\n" + here + "me/me\n"}};

  EXPECT_THAT(check_text(files), ElementsAre(HasSubstr("a.md:2: a character"), HasSubstr("a.md:3: blanks"),
                                             HasSubstr("a.md:4: '" + later), HasSubstr("a.md:5: '" + here)));
}

TEST(HouseChecks, exceptions_excuse_what_they_name_and_must_have_a_reason_and_a_use) {
  const std::vector<std::string> findings{"a.cpp:2: 'exit': x", "a.cpp:9: 'puts': x", "b.cpp:1: 'exit': x"};

  EXPECT_THAT(without_exceptions(findings, "words a.cpp:exit  # because\nsizes b.cpp  # another check\n", "words"),
              ElementsAre("a.cpp:9: 'puts': x", "b.cpp:1: 'exit': x"));
  EXPECT_THAT(without_exceptions(findings, "words a.cpp  # all of it\nwords b.cpp:exit\n", "words"),
              ElementsAre(HasSubstr("exceptions.txt:2: no reason")));
  EXPECT_THAT(without_exceptions({}, "words a.cpp:exit  # because\n", "words"),
              ElementsAre(HasSubstr("exceptions.txt:1: excuses nothing")));
}

}  // namespace
}  // namespace house::house_test

// What must be true of the source text of every folder: who includes whom, sizes, words that have
// no place in a library. Each check returns what is wrong, one line a finding that begins with
// file:line, and nothing for a sound tree.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace house {

struct SourceFile {
  std::string path;  // from the root of the repository: "trireme/ir/graph.h"
  std::string text;
};

// All text files of the repository; build trees and version control are left out. Sorted by path.
std::vector<SourceFile> read_tree(const std::string& root);

bool is_word(char c);                 // a letter, a digit or _
bool is_test(std::string_view path);  // x_test.cpp, x_for_tests.h, and all of tests/

// Source text with the contents of comments and literals blanked; lines and columns stay.
std::string without_comments_and_literals(std::string_view text);

// What stands between quotes, raw literals left out.
struct Literal {
  int line = 0;
  size_t at = 0;  // of the opening quote in the text
  std::string_view text;
};
std::vector<Literal> string_literals(std::string_view text);

// The rows of tools/layers.txt in their order: a folder, and the folders it may include besides
// itself.
struct LayerRow {
  std::string folder;
  std::set<std::string> may_include;
};
struct LayerTable {
  std::vector<LayerRow> rows;
  std::vector<std::string> findings;  // rows that name a folder which is not above them
};
LayerTable parse_layers(std::string_view text);

std::vector<std::string> check_layers(const LayerTable& table, std::span<const SourceFile> files);
// Files of the program outside backend/ include nothing of one device's folder: they ask what all devices have.
std::vector<std::string> check_device_seam(std::span<const SourceFile> files);
// Circles of includes inside a folder, between its files (a header and its source are one) and between its rooms:
// nobody could read one of them first. Tests are not looked at.
std::vector<std::string> check_circles(std::span<const SourceFile> files);
// Exactly the files of ops/ that define an op stand in ops/op_list.def, under the names they define.
std::vector<std::string> check_op_list(std::span<const SourceFile> files);
// Ops are named where they are made and used by name: in ops/, in the kernels, the models, the patterns of the
// ready-made strategies, and in op/structural, which has those that the compiler inserts. All others ask a facet.
// (comm/ has operations of its own, some of the same names.)
std::vector<std::string> check_op_names(std::span<const SourceFile> files);
// Text is read where it enters: parsers are called by what reads files and flags and by the types that programs write
// as text. All others take the types.
std::vector<std::string> check_parsers(std::span<const SourceFile> files);
// Words of C++ that a folder of the library must not use: getenv, printing, ending the process,
// macros.
std::vector<std::string> check_words(std::span<const SourceFile> files);
// Headers include what they use, themselves or by way of what they include: for each name of std, each type of the
// project, fmt and json. (The nightly tests compile each header alone, which takes minutes.)
std::vector<std::string> check_own_includes(std::span<const SourceFile> files);
// #pragma once at the head of each header, and no `using namespace` in it.
std::vector<std::string> check_headers(std::span<const SourceFile> files);
// What is included stays within those who have it: installed headers include neither x_impl.h, a header for sources of
// the library alone, nor x_for_tests.h, and only tests include the latter. (What stands under an #if is for one
// source.)
std::vector<std::string> check_private_headers(std::span<const SourceFile> files);
// What the tables of README.md in a folder of the library name is there, and "May include: base, tensor." is the
// folder's row of tools/layers.txt.
std::vector<std::string> check_readmes(const LayerTable& table, std::span<const SourceFile> files);
// The components of log lines are those that trireme/base/log.cpp knows, and each of these has a line.
std::vector<std::string> check_log_components(std::span<const SourceFile> files);
// Lines of a source file and of a header.
std::vector<std::string> check_sizes(std::span<const SourceFile> files);
// Lines of a function, from the line that opens its body; functions inside classes are short by
// habit and not looked at.
std::vector<std::string> check_functions(std::span<const SourceFile> files);
// Tests take the worst of differences by tests/worst.h: std::max forgets what is no number.
std::vector<std::string> check_worst(std::span<const SourceFile> files);
// The tests of x_test.cpp stand in a namespace x_test: several such files are compiled as one.
std::vector<std::string> check_test_namespaces(std::span<const SourceFile> files);
// Source files that comments and documents name are there.
std::vector<std::string> check_named_files(std::span<const SourceFile> files);
// ASCII only, no tabs in C++, no line that ends in a blank, no paths of one machine, no notes for
// later.
std::vector<std::string> check_text(std::span<const SourceFile> files);

// tests/house/exceptions.txt has lines "<check> <path>[:<word>]  # <reason>". Takes out the
// findings of this check that are excused: all of a file, or those that name 'word'. An exception
// without a reason, or one that excuses nothing, is itself a finding.
std::vector<std::string> without_exceptions(std::vector<std::string> findings, std::string_view exceptions,
                                            std::string_view check);

}  // namespace house

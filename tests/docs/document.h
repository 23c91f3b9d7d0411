// The code blocks of a document (Markdown), and how each is tested, which the comment before it says:
//
//   <!-- test: run -->                 the block is a shell script; if lines begin with "$ ", these are the commands,
//                                      and what follows each is its output
//   <!-- test: printed by COMMAND -->  the block is what the command prints
//   <!-- test: table printed by COMMAND -->
//                                      the table is what the command prints, except for cells that it prints as "..."
//   <!-- test: more of it -->          the block is what the last command printed
//   <!-- test: file NAME -->           the block is a file that later commands read
//   <!-- test: part of FILE -->        the block is a part of a file of the repository, which has its own tests
//   <!-- test: not run: REASON -->     the block is not run; its options and files are checked all the same
//   <!-- test: setup                   lines of a shell script that no reader sees, up to the end of the comment
//
// and after a semicolon:
//
//   ; numbers vary                     numbers are compared as if they were all the same
//   ; some lines                       the block leaves out lines; without this, a line "..." stands for any lines
//   ; shortened: COMMAND: OPTIONS      the options are added to each `trireme COMMAND ...` of the block; may be given
//                                      again
//   ; at once                          each line is a command of its own, and all run at the same time
//   ; needs PROGRAM                    the block is not run if there is no such program, or, for an address, if no
//                                      interface has it
//   ; after FILE                       for a file: it begins with the text of that one
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace docs {

inline bool writes_documents = false;  // `docs_test --write`: tests write into documents what should stand there

using Lines = std::vector<std::string>;

struct Block {
  std::string path;  // of the document, from the root of the repository
  size_t first = 0;  // its lines in the document, from 0; `last` is the one after them
  size_t last = 0;
  size_t indent = 0;  // blanks before each line
  Lines lines;        // without them
  // "run", "printed by", "table printed by", "more of it", "file", "part of", "not run", "setup"; "" without a comment
  std::string verb;
  std::string argument;
  bool numbers_vary = false;
  bool some_lines = false;
  bool at_once = false;
  std::vector<std::pair<std::string, std::string>> shortened;  // "train", "--set train.steps=2"
  std::string needs;
  std::string after;

  std::string where() const;  // "README.md:12"
};

Lines lines_of(std::string_view text);
std::string joined(const Lines& lines);

// In the order of the document. Throws std::runtime_error for a comment that says nothing known.
std::vector<Block> blocks_of(const std::string& path, const Lines& document);

// Whether lines that a command printed are those that a document shows, in which "..." at the end of a line stands for
// any rest of it. `places` then has for each line that is shown its place in the other, or -1 for "...".
bool agree(const Lines& shown, const Lines& printed, bool numbers_vary, bool some_lines,
           std::vector<int>* places = nullptr);

// The rows of a printed table, with the shown cells where the printed ones are "..."; without these where the two
// tables have not as many rows or columns.
Lines filled_table(const Lines& shown, const Lines& printed);

// For lines that do not agree: the places of those that begin most like them, in their order; false where one has none
// that begins as its first half does.
bool nearest(const Lines& shown, const Lines& printed, std::vector<int>& places);

}  // namespace docs

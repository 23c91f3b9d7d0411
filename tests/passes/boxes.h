// The boxes that a step goes through on its way (docs/design/architecture.md), each as a function from text to text, so
// that a pair of files shows what it does: gradients, propagate, search, partition, micro_batches, slice_crossings,
// crews, each pass of pass/passes, choose_homes, and actions, which is the plan.
//
// The text that goes in begins with lines of "# " that say what the pair shows, and lines "name = value" of what is
// asked. Then comes the graph, or from micro_batches on the program.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::boxes {

struct Case {
  std::string words;                           // the lines of "# "
  std::map<std::string, std::string> options;  // taken out as they are read
  std::string text;                            // the rest

  // The option's value, or `otherwise` where it is not given.
  std::string take(const std::string& name, std::string otherwise = "");
};
Case parse_case(std::string_view text);

struct Result {
  std::string in;  // what went in, as it prints
  std::string out;
};

struct Box {
  std::string name;
  std::function<Result(Case&)> run;
};

// In the order in which a step goes through them.
const std::vector<Box>& all();

// Runs a case of a box; the text that went in is printed with its head. Throws kInvalidArgument for options that the
// box does not know.
Result run(const Box& box, std::string_view text);

}  // namespace trireme::boxes

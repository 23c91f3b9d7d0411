// What the fuzzers share. Each file of entries/ is one fuzzer: it gives the bytes it gets to the parser of one thing,
// as a user's file or a socket would. A parser takes the bytes or refuses them with the library's Error; whatever else
// happens - another exception, an error that says the mistake is ours, a crash, a sanitizer's report - ends the
// program, which is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace trireme::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The two sides of the first `separator`; all is on the left when there is none.
std::pair<std::string_view, std::string_view> split(std::string_view text, std::string_view separator);

// Ends the program with these words and the values unless it holds.
void demand(bool holds, std::string_view what, std::string_view one = {}, std::string_view other = {});

// Whether `parse` takes its input. An error of kind kInternal is a bug of ours, and passes on.
template <class Parse>
bool accepts(Parse&& parse) {
  try {
    parse();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kInternal) throw;
    demand(!e.text().empty(), "an error says nothing");
    return false;
  }
  return true;
}

// What is parsed and printed must be read back, and print the same. `parse` gives a value, `print` its text.
template <class Parse, class Print>
void round_trip(std::string_view text, Parse&& parse, Print&& print) {
  std::string printed;
  if (!accepts([&] { printed = print(parse(text)); })) return;
  std::string again;
  try {
    again = print(parse(std::string_view(printed)));
  } catch (const Error& e) {
    demand(false, "what was printed is refused", printed, e.what());
  }
  demand(again == printed, "what was printed reads back as something else", printed, again);
}

}  // namespace trireme::fuzz

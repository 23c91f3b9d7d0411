// The main program of the fuzzers where they are built without libFuzzer, as the ordinary build does: gives one of them
// every file of a folder, and then so many mutations of them, which a seed decides.
//
//   fuzz_parsers config tests/fuzz/corpus/config --mutations=3000 --seed=1
//
// An input that ends the program is left in the file finding-<number> of the working folder.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

#include "tests/fuzz/parsers.h"
#include "tests/fuzz/support.h"
#include "tests/program_arguments.h"
#include "trireme/base/file.h"

namespace trireme::fuzz {
namespace {

constexpr size_t kLongest = 4096;         // bytes of a mutated input
constexpr int64_t kMostMemory = 1 << 20;  // KiB that the process may come to

std::string current;  // for the handler of signals
int current_number = 0;

void leave_input() {
  char name[] = "finding-0000000000";
  int rest = current_number;
  for (size_t i = sizeof name - 2; i >= 8; --i, rest /= 10) name[i] = static_cast<char>('0' + rest % 10);
  const int file = ::open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool ok = file >= 0 && ::write(file, current.data(), current.size()) == static_cast<ssize_t>(current.size());
  ok = ::write(2, "\nthe input is in ", 17) == 17 && ok;
  ok = ::write(2, name, sizeof name - 1) > 0 && ok;
  ok = ::write(2, ok ? "\n" : ": not written\n", ok ? 1 : 14) > 0 && ok;
}

void on_signal(int signal) {
  leave_input();
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

[[noreturn]] void finding(const std::string& what) {
  fmt::print(stderr, "input {}: {}\n", current_number, what);
  leave_input();
  std::exit(1);
}

void run_one(const Parser& parser, const std::string& input, int number) {
  current = input;
  current_number = number;
  const std::vector<uint8_t> exact(input.begin(), input.end());  // what is read behind it is seen by a sanitizer
  try {
    parser.run(exact.data(), exact.size());
  } catch (const std::exception& e) {
    finding(e.what());
  }
  if (number % 64 != 0) return;  // asking takes longer than most parsers do
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  if (usage.ru_maxrss > kMostMemory) finding(fmt::format("the memory has grown to {} KiB", usage.ru_maxrss));
}

class Mutator {
 public:
  Mutator(std::vector<std::string> corpus, uint32_t seed) : corpus_(std::move(corpus)), random_(seed) {}

  std::string next() {
    std::string out = one();
    for (size_t times = 1 + below(4); times > 0; --times) mutate(out);
    out.resize(std::min(out.size(), kLongest));
    return out;
  }

 private:
  size_t below(size_t end) { return end == 0 ? 0 : random_() % end; }
  const std::string& one() { return corpus_[below(corpus_.size())]; }
  std::string piece_of(const std::string& text) {
    const size_t from = below(text.size() + 1);
    return text.substr(from, below(std::min<size_t>(text.size() - from, 64) + 1));
  }

  void mutate(std::string& text) {
    const size_t at = below(text.size() + 1);
    switch (below(8)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
        return;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        return;
      case 2:
        text.erase(at, 1 + below(16));
        return;
      case 3:
        text.insert(at, 1 + below(8), static_cast<char>(below(256)));
        return;
      case 4:
        text.insert(at, piece_of(text));
        return;
      case 5:
        text.insert(at, piece_of(one()));
        return;
      case 6:
        text.resize(at);
        return;
      default:
        replace_number(text, at);
    }
  }

  // Digits become a number at an edge; where there are none, four bytes do.
  void replace_number(std::string& text, size_t at) {
    static constexpr std::string_view kEdges[] = {
        "0",     "-1",    "1",   "4294967296",           "9223372036854775807", "-9223372036854775808",
        "65536", "1e999", "nan", "18446744073709551616", "2147483648",          ""};
    static constexpr std::string_view kDigits = "0123456789";
    const size_t from = text.find_first_of(kDigits, at);
    if (from == std::string::npos) {
      const char byte = below(2) == 0 ? '\xff' : '\x7f';
      for (size_t i = at; i < std::min(at + 4, text.size()); ++i) text[i] = byte;
      return;
    }
    const size_t end = std::min(text.find_first_not_of(kDigits, from), text.size());
    text.replace(from, end - from, kEdges[below(std::size(kEdges))]);
  }

  std::vector<std::string> corpus_;
  std::mt19937 random_;
};

int run(const Parser& parser, const std::string& folder, uint32_t mutations, uint32_t seed) {
  std::vector<std::string> corpus;
  for (const std::string& name : list_directory(folder)) corpus.push_back(read_file(join_path(folder, name)));
  if (corpus.empty()) finding(fmt::format("'{}' is empty", folder));
  fmt::print("{} files, {} mutations of seed {}\n", corpus.size(), mutations, seed);
  int number = 0;
  run_one(parser, "", number++);
  for (const std::string& input : corpus) run_one(parser, input, number++);
  Mutator mutator(std::move(corpus), seed);
  for (uint32_t i = 0; i < mutations; ++i) run_one(parser, mutator.next(), number++);
  return 0;
}

}  // namespace
}  // namespace trireme::fuzz

int main(int argc, char** argv) {
  namespace fuzz = trireme::fuzz;
  const fuzz::Parser* parser = nullptr;
  std::string folder;
  uint32_t mutations = 1000;
  uint32_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (trireme::number_after(arg, "--mutations=", mutations) || trireme::number_after(arg, "--seed=", seed)) continue;
    if (parser == nullptr) {
      const std::span<const fuzz::Parser> all = fuzz::parsers();
      const auto named = std::find_if(all.begin(), all.end(), [&](const fuzz::Parser& p) { return p.name == arg; });
      if (named == all.end()) {
        fmt::print(stderr, "{}: '{}' is no parser of tests/fuzz/entries\n", argv[0], arg);
        return 2;
      }
      parser = &*named;
      continue;
    }
    if (!folder.empty() || arg.starts_with('-')) {
      fmt::print(stderr, "{}: '{}' is not PARSER, FOLDER, --mutations=N or --seed=N\n", argv[0], arg);
      return 2;
    }
    folder = arg;
  }
  if (folder.empty()) {
    fmt::print(stderr, "{}: give PARSER and FOLDER\n", argv[0]);
    return 2;
  }
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) std::signal(signal, fuzz::on_signal);
  LLVMFuzzerInitialize(&argc, &argv);
  return fuzz::run(*parser, folder, mutations, seed);
}

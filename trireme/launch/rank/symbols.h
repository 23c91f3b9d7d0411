// Names of the functions in another process, from the tables in its program and libraries (ELF).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

class ElfFile;

class Symbols {
 public:
  explicit Symbols(int pid);
  ~Symbols();
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;
  // "trireme::Executor::run() in trireme", or "libc.so.6 +0x1234" where no table has it.
  std::string name_at(uintptr_t address);

 private:
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    uint64_t offset = 0;  // in the file
    std::string path;
  };
  std::vector<Range> ranges_;
  std::map<std::string, std::unique_ptr<ElfFile>> files_;
};

// The function of a 64-bit ELF file whose code holds the byte at `offset` of the file; "" when no table says. Trusts
// nothing in the bytes.
std::string function_at(std::string_view file, uint64_t offset);

}  // namespace trireme::launch

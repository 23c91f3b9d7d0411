#include "trireme/launch/rank/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

constexpr size_t kMaxSymbol = 160;

// A copy of the structure at the place, or false when the bytes end before.
template <class T>
bool read_at(std::string_view file, uint64_t at, T& out) {
  if (at > file.size() || file.size() - at < sizeof(T)) return false;
  std::memcpy(&out, file.data() + at, sizeof(T));
  return true;
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string out = status == 0 && text != nullptr ? text : name;
  std::free(text);
  if (out.size() > kMaxSymbol) out = out.substr(0, kMaxSymbol - 3) + "...";
  return out;
}

std::string text_at(std::string_view file, uint64_t begin, uint64_t size, uint64_t at) {
  if (begin > file.size() || size > file.size() - begin || at >= size) return "";
  const std::string_view table = file.substr(begin, size);
  const size_t end = table.find('\0', at);
  return end == std::string_view::npos ? "" : std::string(table.substr(at, end - at));
}

// Where the byte of the file is in memory, by the file's own addresses.
bool address_of(std::string_view file, const Elf64_Ehdr& head, uint64_t offset, uint64_t& address) {
  for (uint64_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!read_at(file, head.e_phoff + i * sizeof part, part)) return false;
    if (part.p_type != PT_LOAD || offset < part.p_offset || offset - part.p_offset >= part.p_filesz) continue;
    address = offset - part.p_offset + part.p_vaddr;
    return true;
  }
  return false;
}

std::string function_in(std::string_view file, const Elf64_Ehdr& head, const Elf64_Shdr& table, uint64_t address) {
  Elf64_Shdr names{};
  if (!read_at(file, head.e_shoff + uint64_t{table.sh_link} * sizeof names, names)) return "";
  for (uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
    Elf64_Sym symbol{};
    if (!read_at(file, table.sh_offset + i * sizeof symbol, symbol)) return "";
    const bool holds = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value <= address &&
                       address - symbol.st_value < symbol.st_size;
    if (holds) return text_at(file, names.sh_offset, names.sh_size, symbol.st_name);
  }
  return "";
}

}  // namespace

std::string function_at(std::string_view file, uint64_t offset) {
  Elf64_Ehdr head{};
  uint64_t address = 0;
  if (!read_at(file, 0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64 || !address_of(file, head, offset, address)) {
    return "";
  }
  for (const uint32_t wanted : {SHT_SYMTAB, SHT_DYNSYM}) {  // the first is the longer one, and may be missing
    for (uint64_t i = 0; i < head.e_shnum; ++i) {
      Elf64_Shdr section{};
      if (!read_at(file, head.e_shoff + i * sizeof section, section)) return "";
      if (section.sh_type != wanted) continue;
      const std::string name = function_in(file, head, section, address);
      if (!name.empty()) return demangled(name);
    }
  }
  return "";
}

// A file as memory.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info {};
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
      size_ = static_cast<size_t>(info.st_size);
      memory_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (fd >= 0) close(fd);
  }
  ~ElfFile() {
    if (memory_ != MAP_FAILED) munmap(memory_, size_);
  }
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;
  std::string_view bytes() const {
    return memory_ == MAP_FAILED ? std::string_view() : std::string_view(static_cast<const char*>(memory_), size_);
  }

 private:
  void* memory_ = MAP_FAILED;
  size_t size_ = 0;
};

Symbols::Symbols(int pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    unsigned long offset = 0;
    int path = -1;
    const int read = std::sscanf(line.c_str(), "%lx-%lx %*4s %lx %*s %*s %n", &begin, &end, &offset, &path);
    if (read == 3 && path >= 0) ranges_.push_back({begin, end, offset, line.substr(static_cast<size_t>(path))});
  }
}

Symbols::~Symbols() = default;

std::string Symbols::name_at(uintptr_t address) {
  for (const Range& range : ranges_) {
    if (address < range.begin || address >= range.end || !range.path.starts_with('/')) continue;
    std::unique_ptr<ElfFile>& file = files_[range.path];
    if (!file) file = std::make_unique<ElfFile>(range.path);
    const uint64_t offset = address - range.begin + range.offset;
    const std::string name = function_at(file->bytes(), offset);
    const std::string of = range.path.substr(range.path.rfind('/') + 1);
    return name.empty() ? fmt::format("{} +0x{:x}", of, offset) : fmt::format("{} in {}", name, of);
  }
  return fmt::format("0x{:x}", address);
}

}  // namespace trireme::launch

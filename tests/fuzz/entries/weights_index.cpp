// The index of weights in several files; none of the files is there.
#include "tests/fuzz/support.h"
#include "trireme/base/file.h"
#include "trireme/base/memory_file_for_tests.h"
#include "trireme/ckpt/safetensors.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempDirectory folder;
  static MemoryFile file;
  static const std::string path = folder / "model.safetensors.index.json";
  static const bool linked = (disk().symlink(file.path(), path), true);
  file.write(fuzz::text_of(data, size));
  fuzz::accepts([&] { ckpt::Weights::open(path); });
  return linked ? 0 : 1;
}

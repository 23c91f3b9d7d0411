// A file of weights: its header, and the tensors in it.
#include "trireme/ckpt/safetensors.h"
#include "tests/fuzz/support.h"
#include "trireme/base/memory_file_for_tests.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile file;
  file.write(fuzz::text_of(data, size));
  ckpt::TensorFile found;
  if (!fuzz::accepts([&] { found = ckpt::read_safetensors(file.path()); })) return 0;
  size_t bytes = 0;
  for (const ckpt::NamedTensor& tensor : found.tensors) bytes += tensor.data.view().raw().size();
  fuzz::demand(bytes < size, "more data than the file has");
  return 0;
}

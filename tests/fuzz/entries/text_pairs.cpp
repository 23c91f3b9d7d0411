// A table of two texts and a class in each row. The first character says how it is read.
#include "tests/fuzz/support.h"
#include "trireme/base/memory_file_for_tests.h"
#include "trireme/data/source.h"
#include "trireme/tensor/host_tensor.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile file;
  if (size == 0) return 0;
  file.write(fuzz::text_of(data + 1, size - 1));
  data::TextPairsOptions options{.seq = 8, .first = "a", .second = "b", .label = "y"};
  options.delimiter = (data[0] & 2) != 0 ? '\t' : ',';
  if ((data[0] & 1) != 0) options.labels = {"no", "yes"};
  if ((data[0] & 4) != 0) options.classes = 2;
  fuzz::accepts([&] {
    const data::SourcePtr source = data::text_pairs(file.path(), options);
    HostTensor tokens({DType::kI32, {8}}), segments({DType::kI32, {8}}), mask({DType::kI32, {8}}),
        label({DType::kI32, {}});
    const View views[] = {tokens.view(), segments.view(), mask.view(), label.view()};
    source->read(source->size() - 1, views);
  });
  return 0;
}

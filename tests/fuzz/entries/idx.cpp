// Two IDX files, plain or gzip: images and labels. The first two bytes say where the labels begin.
#include "tests/fuzz/support.h"
#include "trireme/base/memory_file_for_tests.h"
#include "trireme/data/source.h"
#include "trireme/tensor/host_tensor.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile images;
  static MemoryFile labels;
  if (size < 2) return 0;
  const std::string_view bytes = fuzz::text_of(data + 2, size - 2);
  const size_t border = std::min(size_t{data[0]} | size_t{data[1]} << 8, bytes.size());
  images.write(bytes.substr(0, border));
  labels.write(bytes.substr(border));
  fuzz::accepts([&] {
    const data::SourcePtr source = data::idx(images.path(), labels.path());
    if (source->size() == 0) return;
    HostTensor image(source->fields()[0].sample);
    HostTensor label(source->fields()[1].sample);
    const View views[] = {image.view(), label.view()};
    source->read(source->size() - 1, views);
  });
  return 0;
}

// A table of numbers with its header line. The first character says how it is read.
#include "tests/fuzz/support.h"
#include "trireme/base/memory_file_for_tests.h"
#include "trireme/data/source.h"
#include "trireme/tensor/host_tensor.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile file;
  if (size == 0) return 0;
  file.write(fuzz::text_of(data + 1, size - 1));
  data::CsvOptions options{.fields = {{.name = "features"}, {.name = "label", .columns = {"y"}, .scalar = true}},
                           .delimiter = (data[0] & 2) != 0 ? ';' : ','};
  if ((data[0] & 1) != 0) options.fields[1].dtype = DType::kI32;
  if ((data[0] & 4) != 0) options.fields[0].columns = {"a", "b"};
  fuzz::accepts([&] {
    const data::SourcePtr source = data::csv(file.path(), options);
    HostTensor features(source->fields()[0].sample);
    HostTensor label(source->fields()[1].sample);
    const View views[] = {features.view(), label.view()};
    source->read(source->size() - 1, views);
  });
  return 0;
}

// Two text files as tokens. The first two bytes are the length of a sample and the stride.
#include <algorithm>

#include "tests/fuzz/support.h"
#include "trireme/base/memory_file_for_tests.h"
#include "trireme/data/source.h"
#include "trireme/tensor/host_tensor.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile one;
  static MemoryFile other;
  if (size < 2) return 0;
  const std::string_view bytes = fuzz::text_of(data + 2, size - 2);
  one.write(bytes.substr(0, bytes.size() / 2));
  other.write(bytes.substr(bytes.size() / 2));
  fuzz::accepts([&] {
    const data::SourcePtr source = data::text({one.path(), other.path()}, {.seq = data[0], .stride = data[1]});
    HostTensor tokens(source->fields()[0].sample);
    HostTensor targets(source->fields()[1].sample);
    const View views[] = {tokens.view(), targets.view()};
    for (const int64_t sample : {int64_t{0}, source->size() - 1}) {
      source->read(sample, views);
      fuzz::demand(
          std::ranges::all_of(tokens.view().as<int32_t>(), [](int32_t token) { return token >= 0 && token < 256; }),
          "a token that is no byte");
    }
  });
  return 0;
}

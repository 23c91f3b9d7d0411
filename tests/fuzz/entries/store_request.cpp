// What a client of the job's store sends after its proof, and what a server answers.
#include "tests/fuzz/support.h"
#include "trireme/comm/stores/tcp_store_wire.h"

using namespace trireme;
namespace wire = comm::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  const wire::Request request = wire::read_request(bytes);
  fuzz::demand(request.key.size() <= comm::kMaxStoreKey && request.value.size() <= comm::kMaxStoreValue,
               "a request beyond the bounds");
  if (request.found == wire::Found::kWhole) {
    fuzz::demand(wire::message(request.kind, request.key, request.value, request.number) == bytes,
                 "a request prints as another", bytes);
  }
  if (size >= wire::kHeaderBytes && wire::is_reply(wire::header(bytes))) {
    fuzz::demand(wire::header(bytes).value_bytes <= comm::kMaxStoreValue, "a reply beyond the bounds");
  }
  return 0;
}

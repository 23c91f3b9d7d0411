// Both ends of the scheduler's handshake, and the seal, against bytes of one who does not know the secret: nothing may
// be taken. The first character says what the bytes are given as.
#include "trireme/launch/cluster/handshake.h"
#include "tests/fuzz/support.h"

using namespace trireme;

namespace {

comm::Secret secret_of(uint8_t byte) {
  comm::Secret secret{};
  secret.fill(byte);
  return secret;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const launch::ServerHandshake server(secret_of(7));
  static launch::ClientHandshake client(secret_of(7));
  static launch::Seals seals(secret_of(9), launch::Seals::Side::kServer);
  if (size == 0) return 0;
  const std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      fuzz::demand(!server.check(bytes), "a proof without the secret was taken", bytes);
      break;
    case 1:
      if (client.answer(bytes))
        fuzz::demand(!client.check(bytes.substr(0, 32)), "a server without the secret was taken", bytes);
      fuzz::demand(!client.check(bytes), "a server without the secret was taken", bytes);
      break;
    default:
      fuzz::demand(!seals.open(bytes), "a message without its seal was taken", bytes);
  }
  return 0;
}

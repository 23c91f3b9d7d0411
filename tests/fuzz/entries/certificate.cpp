// The certificate of `trireme plan --search exact`, and the check of its proof. The checksum is made here, since
// nothing that is drawn at random has it.
#include "tests/fuzz/support.h"
#include "trireme/planner/certificate/verify_certificate.h"

using namespace trireme;

namespace {

// The proof of a large one takes long, as its ways are many.
bool is_small(const Certificate& certificate) {
  return certificate.ranks <= 64 && certificate.model.layers <= 32 && certificate.model.batch <= 4096;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::accepts([&] { return parse_certificate(text); });
  const std::string sealed = sealed_certificate(text.substr(0, std::min(text.rfind("end "), text.size())));
  fuzz::round_trip(
      sealed, [](std::string_view of) { return parse_certificate(of); },
      [](const Certificate& certificate) {
        if (is_small(certificate) && fuzz::accepts([&] { verify_certificate(certificate); }))
          fuzz::demand(!proven_text(certificate).empty(), "what is proven has no words");
        return to_string(certificate);
      });
  return 0;
}

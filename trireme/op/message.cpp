#include "trireme/op/message.h"

namespace trireme {

Message message_of(const OpDef& op, const Attrs& attrs) {
  if (!op.inputs.empty()) {
    const auto& sent = attrs.as<SendAttrs>();
    return {true, sent.to, sent.tag, sent.answer};
  }
  const auto& received = attrs.as<RecvAttrs>();
  return {false, received.from, received.tag, -1};
}

}  // namespace trireme

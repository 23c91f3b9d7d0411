#include "trireme/tensor/host_tensor.h"

#include <cstdlib>
#include <cstring>

namespace trireme {

HostTensor::HostTensor(TensorType type) : type_(type) {
  const size_t bytes = (static_cast<size_t>(type.bytes()) + 63) / 64 * 64 + 64;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
  if (!data_) fail(ErrorKind::kIo, "no memory for {} ({} bytes)", to_string(type), bytes);
  std::memset(data_.get(), 0, bytes);
}

HostTensor HostTensor::clone() const {
  HostTensor out(type_);
  if (type_.bytes() > 0) std::memcpy(out.data_.get(), data_.get(), static_cast<size_t>(type_.bytes()));
  return out;
}

void HostTensor::Free::operator()(std::byte* p) const {
  std::free(p);
}

}  // namespace trireme

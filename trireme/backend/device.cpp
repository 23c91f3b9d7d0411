#include "trireme/backend/device.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {

#define DEVICE(name, doc) std::shared_ptr<Device> make_##name(std::string_view told);
#include "trireme/backend/devices.def"
#undef DEVICE

namespace {

struct DeviceKind {
  std::string_view name;
  std::string_view doc;
  std::shared_ptr<Device> (*make)(std::string_view told);
};

constexpr DeviceKind kDevices[] = {
#define DEVICE(name, doc) {#name, doc, make_##name},
#include "trireme/backend/devices.def"
#undef DEVICE
};

}  // namespace

std::shared_ptr<Device> make_device(std::string_view description) {
  const size_t colon = std::min(description.find(':'), description.size());
  const std::string_view name = description.substr(0, colon);
  const std::string_view told = description.substr(std::min(colon + 1, description.size()));
  for (const DeviceKind& kind : kDevices) {
    if (kind.name == name) return kind.make(told);
  }
  const std::vector<std::string> names = device_names();
  fail(ErrorKind::kNotFound, "there is no device '{}'.{}", name, suggestion(name, names));
}

std::vector<std::string> device_names() {
  std::vector<std::string> out;
  for (const DeviceKind& kind : kDevices) out.emplace_back(kind.name);
  return out;
}

std::vector<std::string> device_docs() {
  std::vector<std::string> out;
  for (const DeviceKind& kind : kDevices) out.emplace_back(kind.doc);
  return out;
}

}  // namespace trireme

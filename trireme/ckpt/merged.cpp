#include "trireme/ckpt/merged.h"

#include "trireme/ckpt/safetensors.h"

namespace trireme::ckpt {
namespace {

// An optimizer's state of parameter "w" is named "w.m", which no module can have a buffer of: "w" is a tensor.
bool is_of_the_optimizer(const Reader& reader, const std::string& name) {
  if (reader.info(name).role == "param") return false;
  const size_t dot = name.rfind('.');
  const std::string owner = name.substr(0, dot);
  return dot != std::string::npos && reader.has(owner) && reader.info(owner).role == "param";
}

}  // namespace

void write_merged(const Reader& reader, const std::string& path, Disk& disk) {
  std::vector<Entry> entries;
  for (const std::string& name : reader.names()) {
    if (!is_of_the_optimizer(reader, name)) entries.push_back({name, reader.info(name).type, 0});
  }
  TextMap metadata{{"format", "pt"}, {"trireme_step", std::to_string(reader.step())}};
  for (const auto& [key, value] : reader.meta()) {
    if (key != "config") metadata.emplace(key, value);
  }
  const Plan plan = plan_file(entries, metadata);
  OutputFile file(path, disk);
  file.write(plan.header);
  for (const size_t i : plan.order) file.write(reader.read(entries[i].name).view().raw());
  file.commit();
}

}  // namespace trireme::ckpt

#include "trireme/ckpt/retention.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::ckpt {

std::vector<StepName> superfluous(std::vector<StepName> complete, const Keep& keep) {
  if (keep.last <= 0 || complete.size() <= static_cast<size_t>(keep.last)) return {};
  complete.resize(complete.size() - static_cast<size_t>(keep.last));
  std::erase_if(complete, [&](const StepName& name) {
    return std::find(keep.steps.begin(), keep.steps.end(), name.step) != keep.steps.end();
  });
  return complete;
}

std::vector<std::string> prune(const std::string& root, const Keep& keep, Disk& disk) {
  std::vector<StepName> complete;
  for (const std::string& text : list_directory(root)) {
    const auto name = parse_step_name(text);
    if (name && is_file(join_path(join_path(root, text), kCommitName))) complete.push_back(*name);
  }
  std::sort(complete.begin(), complete.end());
  std::vector<std::string> notes;
  for (const StepName& name : superfluous(std::move(complete), keep)) {
    try {
      remove_checkpoint(join_path(root, to_string(name)), disk);
    } catch (const Error& e) {
      notes.push_back(e.text());
    }
  }
  return notes;
}

void remove_checkpoint(const std::string& path, Disk& disk) {
  disk.remove(join_path(path, kCommitName));
  disk.sync_directory(path);
  remove_tree(path, disk);
}

std::string set_aside(const std::string& path, std::string_view why, Disk& disk) {
  std::string to = fmt::format("{}.{}", path, why);
  for (int number = 2; is_directory(to); ++number) to = fmt::format("{}.{}{}", path, why, number);
  disk.rename(path, to);
  disk.sync_directory(parent_path(path));
  return to;
}

void link_to(const std::string& root, const std::string& link, const std::string& name, Disk& disk) {
  const std::string partial = join_path(root, link + ".tmp");
  disk.remove(partial);
  disk.symlink(name, partial);
  disk.rename(partial, join_path(root, link));
  disk.sync_directory(root);
}

}  // namespace trireme::ckpt

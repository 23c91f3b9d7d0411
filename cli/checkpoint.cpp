// trireme checkpoint: what a checkpoint holds, whether it is whole, and its model as one file for other programs.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "trireme/base/bytes_text.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/merged.h"

namespace trireme::cli {
namespace {

struct CheckpointArgs {
  std::string path, merge;
  bool tensors = false, verify = false;
};

double bytes_of(const ckpt::Reader& reader) {
  double out = 0;
  for (const std::string& name : reader.names()) out += static_cast<double>(reader.info(name).type.bytes());
  return out;
}

void print_tensors(const ckpt::Reader& reader) {
  for (const std::string& name : reader.names()) {
    const ckpt::TensorRecord& tensor = reader.info(name);
    std::printf("  %-5s %-20s %s%s\n", tensor.role.c_str(), to_string(tensor.type).c_str(), name.c_str(),
                tensor.chunks.size() == 1 ? "" : fmt::format(", in {} pieces", tensor.chunks.size()).c_str());
  }
}

int show(const CheckpointArgs& args) {
  const std::string of_run = args.path + "/checkpoints";
  const ckpt::Reader reader(is_directory(of_run) ? of_run : args.path);
  for (const std::string& note : reader.notes()) std::printf("passed over: %s\n", note.c_str());
  std::string of;
  if (!reader.is_one_file()) {
    of = fmt::format(", step {}, of {}{}", reader.step(), counted(reader.world(), "rank"),
                     reader.mesh().empty() ? "" : fmt::format(" (mesh '{}')", reader.mesh()));
  }
  std::printf("%s%s: %s, %s\n", reader.path().c_str(), of.c_str(),
              counted(static_cast<int64_t>(reader.names().size()), "tensor").c_str(),
              bytes_text(bytes_of(reader)).c_str());
  if (args.tensors) print_tensors(reader);
  if (args.verify) {
    reader.verify();
    std::printf("%s\n", reader.is_one_file() ? "every byte can be read; the file has no checksums"
                                             : "every byte is what its checksum says");
  }
  if (!args.merge.empty()) {
    require(args.merge.ends_with(".safetensors"),
            "checkpoint: --merge {}: the file's name must end in .safetensors, by which others know what it is",
            args.merge);
    ckpt::write_merged(reader, args.merge);
    std::printf("wrote %s\n", args.merge.c_str());
  }
  return 0;
}

}  // namespace

void add_checkpoint(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<CheckpointArgs>();
  CLI::App* command = app.add_subcommand(
      "checkpoint", "Show what a checkpoint holds, check its bytes, or write its model as one safetensors file");
  command
      ->add_option("checkpoint", args->path,
                   "A run's folder, that of its checkpoints, one checkpoint, or a safetensors file")
      ->required();
  command->add_flag("--tensors", args->tensors, "List its tensors");
  command->add_flag("--verify", args->verify, "Read every byte and compare its checksum");
  command->add_option("--merge", args->merge,
                      "Write parameters and buffers, whole, to this file: for other programs, or to begin another run "
                      "with (--init-from)");
  command->footer(
      "Example:\n  trireme checkpoint runs/latest --verify --merge model.safetensors\n\n"
      "Nothing has to be converted for other ranks or cuts: train, evaluate and generate read a checkpoint as it is.");
  command->callback([=, &chosen] { chosen = [=] { return show(*args); }; });
}

}  // namespace trireme::cli

// trireme checkpoint: what checkpoints hold, whether they are whole, where two differ, and their weights as files for
// other programs.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/checkpoint_text.h"
#include "cli/commands.h"
#include "cli/progress_line.h"
#include "trireme/base/bytes_text.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/difference.h"
#include "trireme/ckpt/export_weights.h"
#include "trireme/ckpt/open_tensors.h"
#include "trireme/parallel/asked/tier_sizes.h"

namespace trireme::cli {
namespace {

struct SelectionArgs {
  std::vector<std::string> only, except, renames;
  bool state = false;

  ckpt::Selection read() const {
    ckpt::Selection out{.only = only, .except = except, .state = state};
    for (const std::string& rename : renames) out.renames.push_back(ckpt::parse_rename(rename));
    return out;
  }
};

void warn_of(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) TRIREME_LOG(kWarn, "ckpt", "{}", note);
}

int list(const std::string& path, bool json) {
  const std::string root = ckpt::checkpoints_of(path);
  require_directory(root, "checkpoint list", "name a run's folder, or that of its checkpoints");
  const ckpt::Listing listing = ckpt::list_checkpoints(root);
  warn_of(listing.notes);
  require(!listing.complete.empty(), "checkpoint list: '{}' holds no complete checkpoint", root);
  print_list(root, listing, json);
  return 0;
}

int show(const std::string& path, bool tensors, bool config, bool json) {
  require(
      !config || (!tensors && !json),
      "checkpoint show: --config prints the configuration alone, as its file would be, so {} would do nothing; leave "
      "one out",
      tensors ? "--tensors" : "--json");
  const std::unique_ptr<ckpt::TensorSource> source = ckpt::open_tensors(path);
  if (const auto* reader = dynamic_cast<const ckpt::Reader*>(source.get())) {
    warn_of(reader->notes());
    if (config) return print_config(*reader);
    print_checkpoint(*reader, tensors, json);
  } else {
    require(!config, "checkpoint show: {} was not written by `trireme train`: it has no configuration", source->text());
    print_weights(*source, tensors, json);
  }
  return 0;
}

// Of one checkpoint, or of each of a folder. 3, like other damage, when one is not whole.
int verify(const std::string& path) {
  const std::string root = ckpt::checkpoints_of(path);
  std::vector<std::string> paths;
  int code = 0;
  if (is_file(join_path(root, ckpt::kCommitName))) {
    paths.push_back(root);
  } else {
    require_directory(root, "checkpoint verify", "name a run's folder, that of its checkpoints, or one of them");
    const ckpt::Listing listing = ckpt::list_checkpoints(root);
    for (const ckpt::Found& found : listing.complete) paths.push_back(found.path);
    for (const std::string& note : listing.notes) std::printf("%s\n", note.c_str());
    if (!listing.notes.empty()) code = exit_code(ErrorKind::kCorrupt);
    require(!paths.empty() || code != 0, "checkpoint verify: there is no checkpoint in '{}'", root);
  }
  for (const std::string& each : paths) {
    try {
      const ckpt::Reader reader(each);
      reader.verify();
      std::printf("%s: whole, %s read\n", each.c_str(), bytes_text(static_cast<double>(reader.bytes_read())).c_str());
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kCorrupt && e.kind() != ErrorKind::kIo && e.kind() != ErrorKind::kNotFound) throw;
      std::printf("%s: damaged: %s\n", each.c_str(), e.text().c_str());
      code = exit_code(ErrorKind::kCorrupt);
    }
    std::fflush(stdout);  // a large one takes its time
  }
  return code;
}

// As diff does: 1 when something differs.
int diff(const std::string& first, const std::string& second, const SelectionArgs& args, bool json) {
  const auto a = ckpt::open_tensors(first), b = ckpt::open_tensors(second);
  const ckpt::Difference found = ckpt::difference(*a, *b, args.read());
  print_difference(*a, *b, found, json);
  return found.none() ? 0 : 1;
}

struct ExportArgs {
  std::string source, target, dtype, max_file;
  SelectionArgs selection;
  bool force = false;
};

int export_weights(const ExportArgs& args) {
  const std::unique_ptr<ckpt::TensorSource> source = ckpt::open_tensors(args.source);
  ckpt::ExportOptions options{.selection = args.selection.read(), .max_file_bytes = MemorySize(args.max_file).bytes()};
  if (!args.dtype.empty()) options.dtype = parse_dtype(args.dtype);
  if (const auto* reader = dynamic_cast<const ckpt::Reader*>(source.get())) {
    warn_of(reader->notes());
    options.metadata = ckpt::metadata_of(*reader);
  }
  const bool is_there = is_file(args.target) || (is_directory(args.target) && !list_directory(args.target).empty());
  require(!is_there || args.force,
          "checkpoint export: '{}' exists already; name another place, or add --force to overwrite it", args.target);
  if (args.target.ends_with(".safetensors")) require_place_for(args.target, "checkpoint export");
  require(!ckpt::holds_checkpoints(args.target), "checkpoint export: '{}' holds checkpoints; name a folder of its own",
          args.target);
  ProgressLine progress;
  if (progress.shows()) {
    options.on_tensor = [&](int64_t bytes, int64_t of) {
      const auto text = [](int64_t n) { return bytes_text(static_cast<double>(n)); };
      if (progress.is_due()) progress.show(fmt::format("{} of {} are written", text(bytes), text(of)));
    };
  }
  const ckpt::Exported written = ckpt::export_weights(*source, args.target, options);
  progress.clear();
  for (const auto& [name, count] : written.overflowed) {
    TRIREME_LOG(kWarn, "ckpt", "'{}': {} too large for {}; written as infinity", name, counted(count, "element"),
                args.dtype);
  }
  std::printf("%s, %s, of %s:\n", counted(written.tensors, "tensor").c_str(),
              bytes_text(static_cast<double>(written.bytes)).c_str(), source->text().c_str());
  for (const std::string& file : written.files) std::printf("  %s\n", file.c_str());
  return 0;
}

CLI::App* add_command(CLI::App& checkpoint, const char* name, const char* doc, const char* example) {
  CLI::App* out = checkpoint.add_subcommand(name, doc);
  if (example != nullptr) out->footer(std::string("Example:\n  ") + example);
  return out;
}

constexpr const char* kSource =
    "A run's folder or that of its checkpoints (the newest is meant), one checkpoint, a .safetensors file, a "
    ".safetensors.index.json, or a folder of published weights";

void add_selection(CLI::App& command, SelectionArgs& args, const char* of) {
  command
      .add_option(
          "--only", args.only,
          std::string("Take these tensors ") + of + " alone; * stands for any characters; commas between several")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--except", args.except, "Leave these out")->delimiter(',')->allow_extra_args(false);
  command
      .add_option("--rename", args.renames,
                  "OLD=NEW: other names, as in --rename 'transformer.*=*'; the first that fits a name counts")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_flag("--state", args.state, "The optimizer's state too");
}

void add_list(CLI::App& checkpoint, Action& chosen) {
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      add_command(checkpoint, "list", "The checkpoints of a run", "trireme checkpoint list runs/latest");
  command->add_option("run", *path, "A run's folder, or that of its checkpoints")->required();
  command->add_flag("--json", *json, "A line of JSON for each");
  command->callback([=, &chosen] { chosen = [=] { return list(*path, *json); }; });
}

void add_show(CLI::App& checkpoint, Action& chosen) {
  struct Args {
    std::string path;
    bool tensors = false, config = false, json = false;
  };
  auto args = std::make_shared<Args>();
  CLI::App* command = add_command(checkpoint, "show", "What a checkpoint, or a file of weights, holds",
                                  "trireme checkpoint show runs/latest --tensors");
  command->add_option("checkpoint", args->path, kSource)->required();
  command->add_flag("--tensors", args->tensors, "Each tensor: its type, and the boxes it is stored in");
  command->add_flag("--config", args->config, "The configuration of the job alone, as its file would be");
  command->add_flag("--json", args->json, "One line of JSON");
  command->callback(
      [=, &chosen] { chosen = [=] { return show(args->path, args->tensors, args->config, args->json); }; });
}

void add_verify(CLI::App& checkpoint, Action& chosen) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = add_command(
      checkpoint, "verify",
      "Read every byte of a run's checkpoints, or of one, and check it; the exit code is 3 when one is damaged",
      "trireme checkpoint verify runs/latest");
  command->add_option("checkpoint", *path, "A run's folder, that of its checkpoints, or one checkpoint")->required();
  command->callback([=, &chosen] { chosen = [=] { return verify(*path); }; });
}

void add_diff(CLI::App& checkpoint, Action& chosen) {
  struct Args {
    std::string first, second;
    SelectionArgs selection;
    bool json = false;
  };
  auto args = std::make_shared<Args>();
  CLI::App* command = add_command(
      checkpoint, "diff", "Where the tensors of two differ, by how much; the exit code is 1 when some do", nullptr);
  command->footer("For two runs of a job, for example:\n  trireme checkpoint diff runs/a runs/b --state");
  command->add_option("first", args->first, kSource)->required();
  command->add_option("second", args->second, "What it is compared with, named in the same ways")->required();
  add_selection(*command, args->selection, "of both");
  command->add_flag("--json", args->json, "One line of JSON");
  command->callback(
      [=, &chosen] { chosen = [=] { return diff(args->first, args->second, args->selection, args->json); }; });
}

void add_export(CLI::App& checkpoint, Action& chosen) {
  auto args = std::make_shared<ExportArgs>();
  CLI::App* command =
      add_command(checkpoint, "export",
                  "Write weights as safetensors files of whole tensors, for programs that know nothing of ranks",
                  "trireme checkpoint export runs/latest weights --dtype bf16 --max-file 5GB");
  command->add_option("checkpoint", args->source, kSource)->required();
  command
      ->add_option(
          "target", args->target,
          "NAME.safetensors, or a folder: model.safetensors, or several files and an index as Hugging Face names them")
      ->required();
  command->add_option("--dtype", args->dtype, "Element type of the floating-point tensors; by default their own")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "f64"}));
  command->add_option("--max-file", args->max_file,
                      "The most bytes of a file's tensors, like 5GB; by default there is one file");
  add_selection(*command, args->selection, "of the source");
  command->add_flag("--force", args->force, "Write over what is there");
  command->callback([=, &chosen] { chosen = [=] { return export_weights(*args); }; });
}

}  // namespace

void add_checkpoint(CLI::App& app, Action& chosen) {
  CLI::App* checkpoint =
      app.add_subcommand("checkpoint", "List, show, verify and compare checkpoints, and export their weights");
  checkpoint->require_subcommand(1);
  add_list(*checkpoint, chosen);
  add_show(*checkpoint, chosen);
  add_verify(*checkpoint, chosen);
  add_diff(*checkpoint, chosen);
  add_export(*checkpoint, chosen);
  checkpoint->footer(
      "A checkpoint is read at any number of ranks and under any cuts, so none needs to be converted to go on with it, "
      "to evaluate it or to begin another run with it (--resume, --init-from).");
}

}  // namespace trireme::cli

#include "cli/checkpoint_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/bytes_text.h"
#include "trireme/base/clock.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/json_text.h"
#include "trireme/train/job/config.h"

namespace trireme::cli {
namespace {

void say(const JsonObject& line) {
  std::printf("%s\n", line.text().c_str());
}

void say(const char* what, const std::string& value) {
  std::printf("%-11s %s\n", what, value.c_str());
}

std::string bytes_text_of(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

// What a link in the folder names: "" where there is none.
std::string target_of(const std::string& root, const char* link) {
  std::error_code code;
  return std::filesystem::read_symlink(join_path(root, link), code).string();
}

int64_t bytes_of_files(const ckpt::Manifest& manifest) {
  int64_t out = 0;
  for (const auto& [name, file] : manifest.files) out += file.bytes;
  return out;
}

std::string meta_of(const std::map<std::string, std::string>& meta, const char* key) {
  const auto found = meta.find(key);
  return found == meta.end() ? "" : found->second;
}

// Tensors of one sort.
struct Sum {
  int64_t tensors = 0, values = 0, bytes = 0;
  std::set<std::string> types;

  void add(const TensorType& type) {
    ++tensors;
    values += type.elements();
    bytes += type.bytes();
    types.insert(std::string(to_string(type.dtype)));
  }
  std::string text() const {
    return fmt::format("{}, {} values, {} ({})", counted(tensors, "tensor"), values, bytes_text_of(bytes),
                       joined_text(types, ", "));
  }
  JsonObject as_json() const { return {{"tensors", tensors}, {"values", values}, {"bytes", bytes}}; }
};

struct Sums {
  Sum parameters, buffers, state;
  std::set<std::string> states;  // what the optimizer keeps of a parameter: "m", "v"
};

Sums sums_of(const ckpt::TensorSource& source, const std::map<std::string, bool>& is_buffer) {
  Sums out;
  for (const std::string& name : source.names()) {
    const TensorType& type = source.type(name);
    if (source.is_state_of_parameter(name)) {
      out.state.add(type);
      out.states.insert(name.substr(ckpt::owner_of_state(name).size() + 1));
    } else if (const auto found = is_buffer.find(name); found != is_buffer.end() && found->second) {
      out.buffers.add(type);
    } else {
      out.parameters.add(type);
    }
  }
  return out;
}

std::string role_of(const ckpt::Reader& reader, const std::string& name) {
  return reader.is_state_of_parameter(name) ? "state" : reader.info(name).role == "param" ? "parameter" : "buffer";
}

std::string boxes_text(const ckpt::TensorRecord& record) {
  if (record.chunks.size() == 1) return record.chunks.front().file;
  std::vector<std::string> out;
  for (const ckpt::Chunk& chunk : record.chunks) out.push_back(trireme::to_string(chunk.box) + " " + chunk.file);
  return joined_text(out, ", ");
}

void print_tensors(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    std::printf("  %s\n", line.c_str());
  }
}

JsonText shape_json(const Shape& shape) {
  std::vector<JsonText> out;
  for (int dim = 0; dim < shape.rank(); ++dim) out.push_back(shape[dim]);
  return out;
}

void print_as_json(const ckpt::Reader& reader, const ckpt::Manifest& manifest, const Sums& sums, bool tensors) {
  JsonObject line{{"checkpoint", reader.path()},
                  {"step", reader.step()},
                  {"seed", reader.seed()},
                  {"ranks", reader.world()},
                  {"mesh", reader.mesh()},
                  {"samples_drawn", reader.data_position()},
                  {"files", std::ssize(manifest.files)},
                  {"bytes", bytes_of_files(manifest)},
                  {"parameters", sums.parameters.as_json()},
                  {"buffers", sums.buffers.as_json()},
                  {"state", sums.state.as_json()}};
  JsonObject meta{};
  for (const auto& [key, value] : reader.meta()) {
    if (key != "config") meta.add(key, value);
  }
  if (!meta.members().empty()) line.add("meta", meta);
  if (tensors) {
    std::vector<JsonText> all;
    for (const std::string& name : reader.names()) {
      const ckpt::TensorRecord& record = reader.info(name);
      std::vector<JsonText> boxes;
      for (const ckpt::Chunk& chunk : record.chunks) {
        boxes.emplace_back(JsonObject{
            {"file", chunk.file}, {"start", shape_json(chunk.box.start)}, {"size", shape_json(chunk.box.size)}});
      }
      all.emplace_back(JsonObject{{"name", name},
                                  {"role", role_of(reader, name)},
                                  {"dtype", to_string(record.type.dtype)},
                                  {"shape", shape_json(record.type.shape)},
                                  {"boxes", boxes}});
    }
    line.add("tensors", all);
  }
  say(line);
}

std::string difference_text(const ckpt::TensorDifference& tensor) {
  const int64_t of = tensor.first.elements();
  std::string out = fmt::format("{} of {} elements differ", tensor.elements, of);
  if (tensor.largest > 0) {
    out += fmt::format(", by {:.3g} at most", tensor.largest);
    if (tensor.magnitude > 0) out += fmt::format(", {:.2g} of the largest", tensor.largest / tensor.magnitude);
  }
  return out;
}

}  // namespace

void print_list(const std::string& root, const ckpt::Listing& listing, bool json) {
  const std::string best = target_of(root, "best"), latest = base_name(listing.complete.back().path);
  std::vector<std::vector<std::string>> rows;
  for (const ckpt::Found& found : listing.complete) {
    const ckpt::Manifest manifest = ckpt::read_manifest(found.path);
    const std::string name = base_name(found.path);
    const double written = written_at(join_path(found.path, ckpt::kCommitName));
    if (json) {
      say({{"checkpoint", found.path},
           {"step", found.step},
           {"written", written},
           {"bytes", bytes_of_files(manifest)},
           {"ranks", manifest.world},
           {"mesh", manifest.mesh},
           {"best", name == best},
           {"latest", name == latest}});
      continue;
    }
    const char* mark = name == best && name == latest ? "best, newest"
                       : name == best                 ? "best"
                       : name == latest               ? "newest"
                                                      : "";
    rows.push_back(
        {name, utc_text(written), bytes_text_of(bytes_of_files(manifest)),
         fmt::format("{}{}", counted(manifest.world, "rank"), manifest.mesh.empty() ? "" : ", " + manifest.mesh),
         mark});
  }
  if (json) return;
  std::printf("%s\n", root.c_str());
  print_tensors(rows);
}

void print_checkpoint(const ckpt::Reader& reader, bool tensors, bool json) {
  const ckpt::Manifest manifest = ckpt::read_manifest(reader.path());
  std::map<std::string, bool> is_buffer;
  for (const auto& [name, record] : manifest.tensors) is_buffer[name] = record.role != "param";
  const Sums sums = sums_of(reader, is_buffer);
  if (json) return print_as_json(reader, manifest, sums, tensors);
  say("checkpoint", reader.path());
  say("step",
      fmt::format("{}, written {}", reader.step(), utc_text(written_at(join_path(reader.path(), ckpt::kCommitName)))));
  if (const std::string text = meta_of(reader.meta(), "config"); !text.empty()) {
    const JobConfig config = parse_config(text, reader.path() + " (configuration)");
    say("job", fmt::format("{}: {} on {}", config.name, config.model.kind, config.data.kind));
  }
  say("saved by",
      fmt::format("{}{}; {}, {}", counted(reader.world(), "rank"), reader.mesh().empty() ? "" : ", " + reader.mesh(),
                  counted(std::ssize(manifest.files), "file"), bytes_text_of(bytes_of_files(manifest))));
  say("parameters", sums.parameters.text());
  if (sums.buffers.tensors > 0) say("buffers", sums.buffers.text());
  if (sums.state.tensors > 0)
    say("optimizer", fmt::format("{}: {}", sums.state.text(), joined_text(sums.states, ", ")));
  say("samples", fmt::format("{} drawn, by the seed {}", reader.data_position(), reader.seed()));
  if (const std::string value = meta_of(reader.meta(), "best_value"); !value.empty()) {
    say("best", fmt::format("{} {:.5g} at step {}", meta_of(reader.meta(), "best_measure"),
                            std::strtod(value.c_str(), nullptr), meta_of(reader.meta(), "best_step")));
  }
  if (!tensors) return;
  std::vector<std::vector<std::string>> rows;
  for (const std::string& name : reader.names()) {
    rows.push_back({name, trireme::to_string(reader.type(name)), role_of(reader, name), boxes_text(reader.info(name))});
  }
  print_tensors(rows);
}

void print_weights(const ckpt::TensorSource& weights, bool tensors, bool json) {
  const Sums sums = sums_of(weights, {});
  if (json) {
    JsonObject line{
        {"weights", weights.text()}, {"parameters", sums.parameters.as_json()}, {"state", sums.state.as_json()}};
    if (tensors) {
      std::vector<JsonText> all;
      for (const std::string& name : weights.names()) {
        all.emplace_back(JsonObject{{"name", name},
                                    {"dtype", to_string(weights.type(name).dtype)},
                                    {"shape", shape_json(weights.type(name).shape)}});
      }
      line.add("tensors", all);
    }
    return say(line);
  }
  say("weights", weights.text());
  say("tensors", sums.parameters.text());
  if (sums.state.tensors > 0)
    say("optimizer", fmt::format("{}: {}", sums.state.text(), joined_text(sums.states, ", ")));
  if (!tensors) return;
  std::vector<std::vector<std::string>> rows;
  for (const std::string& name : weights.names()) rows.push_back({name, trireme::to_string(weights.type(name))});
  print_tensors(rows);
}

int print_config(const ckpt::Reader& reader) {
  const std::string text = meta_of(reader.meta(), "config");
  require(!text.empty(), "checkpoint show: '{}' was not written by `trireme train`: it has no configuration",
          reader.path());
  std::fputs(text.c_str(), stdout);
  return 0;
}

void print_difference(const ckpt::TensorSource& first, const ckpt::TensorSource& second, const ckpt::Difference& found,
                      bool json) {
  if (json) {
    std::vector<JsonText> types, values;
    for (const ckpt::TensorDifference& each : found.types) {
      types.emplace_back(JsonObject{
          {"name", each.name}, {"first", trireme::to_string(each.first)}, {"second", trireme::to_string(each.second)}});
    }
    for (const ckpt::TensorDifference& each : found.values) {
      values.emplace_back(JsonObject{{"name", each.name},
                                     {"elements", each.elements},
                                     {"of", each.first.elements()},
                                     {"largest", each.largest},
                                     {"magnitude", each.magnitude}});
    }
    return say({{"same", found.equal},
                {"only_first", found.only_first},
                {"only_second", found.only_second},
                {"types", types},
                {"values", values}});
  }
  std::vector<std::vector<std::string>> rows;
  for (const std::string& name : found.only_first) rows.push_back({name, "only in " + first.text()});
  for (const std::string& name : found.only_second) rows.push_back({name, "only in " + second.text()});
  for (const ckpt::TensorDifference& each : found.types) {
    rows.push_back(
        {each.name, fmt::format("{} and {}{}", trireme::to_string(each.first), trireme::to_string(each.second),
                                each.elements > 0 ? "; " + difference_text(each) : "")});
  }
  for (const ckpt::TensorDifference& each : found.values) rows.push_back({each.name, difference_text(each)});
  print_tensors(rows);
  std::printf("%s equal, %zu not\n", counted(found.equal, "tensor").c_str(), rows.size());
}

}  // namespace trireme::cli

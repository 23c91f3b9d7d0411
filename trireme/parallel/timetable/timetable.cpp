#include "trireme/parallel/timetable/timetable.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme {
namespace {

constexpr std::string_view kPasses = "FBIW";
constexpr int kMostStages = 1 << 14;
constexpr int kMostParts = 1 << 16;  // micro-batches, chunks

char letter_of(Unit::Pass pass) {
  return kPasses[static_cast<size_t>(pass)];
}

std::optional<int> number_in(std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) return std::nullopt;
  return value;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!(text = trim(text)).empty()) {
    words.push_back(text.substr(0, text.find(' ')));
    text.remove_prefix(words.back().size());
  }
  return words;
}

std::optional<Unit> parse_unit(std::string_view word, int seq_chunks) {
  if (word.empty() || kPasses.find(word[0]) == std::string_view::npos) return std::nullopt;
  Unit unit{.pass = static_cast<Unit::Pass>(kPasses.find(word[0]))};
  word.remove_prefix(1);
  std::vector<int> numbers;
  for (bool more = true; more;) {
    const size_t dot = word.find('.');
    const std::optional<int> number = number_in(word.substr(0, dot), 0, kMostParts);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    more = dot != std::string_view::npos;
    if (more) word.remove_prefix(dot + 1);
  }
  if (numbers.size() != (seq_chunks > 1 ? 3U : 2U)) return std::nullopt;
  unit.stage = numbers[0];
  unit.micro_batch = numbers[1];
  if (seq_chunks > 1) unit.seq_chunk = numbers[2];
  return unit;
}

void parse_head(std::string_view line, int number, Timetable& out) {
  const std::vector<std::string_view> words = split_words(line);
  constexpr std::string_view kForm = "'timetable NAME stages=S micro_batches=M', and seq_chunks=C if positions are cut";
  require(words.size() >= 4 && words[0] == "timetable", "timetable line {}: '{}' is not {}", number, line, kForm);
  out.name = words[1];
  struct Key {
    std::string_view name;
    int* value;
    int most;
  };
  const std::vector<Key> keys{{"stages", &out.stages, kMostStages},
                              {"micro_batches", &out.micro_batches, kMostParts},
                              {"seq_chunks", &out.seq_chunks, kMostParts}};
  std::set<std::string_view> given;
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string_view name = words[i].substr(0, equals);
    const auto key = std::ranges::find(keys, name, &Key::name);
    require(key != keys.end() && equals != std::string_view::npos && given.insert(name).second,
            "timetable line {}: '{}' is not one of stages=S, micro_batches=M, seq_chunks=C, each given once", number,
            words[i]);
    const std::optional<int> value = number_in(words[i].substr(equals + 1), 1, key->most);
    require(value.has_value(), "timetable line {}: {} must be a number from 1 to {} (got '{}')", number, name,
            key->most, words[i].substr(equals + 1));
    *key->value = *value;
  }
  require(given.contains("stages") && given.contains("micro_batches"), "timetable line {}: '{}' is not {}", number,
          line, kForm);
  require(int64_t{out.stages} * out.micro_batches * out.seq_chunks <= kMostUnits,
          "timetable line {}: {} stages x {} micro-batches x {} chunks are more than {} units", number, out.stages,
          out.micro_batches, out.seq_chunks, kMostUnits);
}

Unit with(Unit unit, Unit::Pass pass) {
  unit.pass = pass;
  return unit;
}

bool is_within(const Unit& unit, const Timetable& timetable) {
  const auto in = [](int value, int size) { return value >= 0 && value < size; };
  return in(unit.stage, timetable.stages) && in(unit.micro_batch, timetable.micro_batches) &&
         in(unit.seq_chunk, timetable.seq_chunks);
}

std::string text_of(const Unit& unit, const Timetable& timetable) {
  return to_string(unit, timetable.seq_chunks);
}

// Of units within a timetable.
class UnitSet {
 public:
  explicit UnitSet(const Timetable& of)
      : stages_(static_cast<size_t>(of.stages)),
        micro_batches_(static_cast<size_t>(of.micro_batches)),
        seq_chunks_(static_cast<size_t>(of.seq_chunks)),
        has_(kPasses.size() * stages_ * micro_batches_ * seq_chunks_, 0) {}

  bool insert(const Unit& unit) { return std::exchange(has_[index_of(unit)], 1) == 0; }  // whether it is new
  bool contains(const Unit& unit) const { return has_[index_of(unit)] != 0; }

 private:
  size_t index_of(const Unit& unit) const {
    size_t out = static_cast<size_t>(unit.pass) * stages_ + static_cast<size_t>(unit.stage);
    out = out * micro_batches_ + static_cast<size_t>(unit.micro_batch);
    return out * seq_chunks_ + static_cast<size_t>(unit.seq_chunk);
  }

  size_t stages_, micro_batches_, seq_chunks_;
  std::vector<char> has_;
};

template <class... Args>
[[noreturn]] void refuse_timetable(const Timetable& timetable, fmt::format_string<Args...> text, Args&&... args) {
  fail(ErrorKind::kInvalidArgument, "timetable '{}': {}", timetable.name,
       fmt::format(text, std::forward<Args>(args)...));
}

// All units, each once, a stage's in one crew; and the crew of each stage, -1: none. Words are made only of what is
// wrong: timetables of many crews are checked often.
UnitSet units_of(const Timetable& timetable, std::vector<int>& crew_of) {
  UnitSet out(timetable);
  for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
    for (const Unit& unit : timetable.crews[crew]) {
      if (!is_within(unit, timetable)) {
        refuse_timetable(timetable, "crew {} has {}, but there are {}, {} and {} of positions", crew,
                         text_of(unit, timetable), counted(timetable.stages, "stage"),
                         counted(timetable.micro_batches, "micro-batch"), counted(timetable.seq_chunks, "chunk"));
      }
      if (!out.insert(unit))
        refuse_timetable(timetable, "{} stands twice, the second time in crew {}", text_of(unit, timetable), crew);
      int& owner = crew_of[static_cast<size_t>(unit.stage)];
      if (owner < 0) owner = static_cast<int>(crew);
      if (owner != static_cast<int>(crew)) {
        refuse_timetable(timetable, "{} is in crew {}, but stage {} belongs to crew {}", text_of(unit, timetable), crew,
                         unit.stage, owner);
      }
    }
  }
  return out;
}

void check_passes_of(const Unit& forward, int crew, const UnitSet& seen, const Timetable& timetable) {
  const auto text = [&](Unit::Pass pass) { return text_of(with(forward, pass), timetable); };
  const auto has = [&](Unit::Pass pass) { return seen.contains(with(forward, pass)); };
  using enum Unit::Pass;
  const bool whole = has(kBackward), input = has(kInputGrad), weight = has(kWeightGrad);
  if (whole && (input || weight))
    refuse_timetable(timetable, "crew {} has {}, the whole backward pass, and also a part of it", crew,
                     text(kBackward));
  if (!whole && !input)
    refuse_timetable(timetable, "crew {} lacks {} (or {} and {})", crew, text(kBackward), text(kInputGrad),
                     text(kWeightGrad));
  if (!whole && !weight)
    refuse_timetable(timetable, "crew {} has {} but lacks {}", crew, text(kInputGrad), text(kWeightGrad));
}

// Each unit once, or each of forward passes, and a stage's units in one crew.
void check_units(const Timetable& timetable, bool forward_alone) {
  std::vector<int> crew_of(static_cast<size_t>(timetable.stages), -1);
  const UnitSet seen = units_of(timetable, crew_of);
  for (int stage = 0; stage < timetable.stages; ++stage) {
    const int crew = crew_of[static_cast<size_t>(stage)];
    if (crew < 0) refuse_timetable(timetable, "no crew has a unit of stage {}", stage);
    for (int part = 0; part < timetable.micro_batches * timetable.seq_chunks; ++part) {
      const Unit forward{
          .stage = stage, .micro_batch = part / timetable.seq_chunks, .seq_chunk = part % timetable.seq_chunks};
      if (!seen.contains(forward)) refuse_timetable(timetable, "crew {} lacks {}", crew, text_of(forward, timetable));
      if (!forward_alone) check_passes_of(forward, crew, seen, timetable);
    }
  }
}

// Runs the orders against each other, however long anything takes: what is left in the end waits in a circle.
void check_order(const Timetable& timetable) {
  const UnitIndex index(timetable);
  std::vector<int> done(timetable.crews.size(), 0);
  const auto next_of = [&](size_t crew) { return timetable.crews[crew][static_cast<size_t>(done[crew])]; };
  const auto missing = [&](size_t crew) -> std::optional<Unit> {
    for (const Unit& need : index.needs_of(next_of(crew))) {
      const UnitIndex::Place place = index.place_of(need);
      if (place.at >= done[static_cast<size_t>(place.crew)]) return need;
    }
    return std::nullopt;
  };
  const auto has_ended = [&](size_t crew) { return done[crew] == static_cast<int>(timetable.crews[crew].size()); };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
      for (; !has_ended(crew) && !missing(crew); moved = true) ++done[crew];
    }
  }
  std::string waits;
  for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
    if (has_ended(crew)) continue;
    const Unit need = *missing(crew);
    const std::string unit = text_of(next_of(crew), timetable);
    const int of = index.place_of(need).crew;
    require(of != static_cast<int>(crew), "timetable '{}': crew {} has {} before {}, which it needs", timetable.name,
            crew, unit, text_of(need, timetable));
    waits += fmt::format("{}crew {} waits before {} for {} of crew {}", waits.empty() ? "" : ", ", crew, unit,
                         text_of(need, timetable), of);
  }
  require(waits.empty(), "timetable '{}' cannot end: {}", timetable.name, waits);
}

}  // namespace

std::string to_string(const Unit& unit, int seq_chunks) {
  std::string out = fmt::format("{}{}.{}", letter_of(unit.pass), unit.stage, unit.micro_batch);
  if (seq_chunks > 1) out += fmt::format(".{}", unit.seq_chunk);
  return out;
}

std::string to_string(const Timetable& timetable) {
  std::string out =
      fmt::format("timetable {} stages={} micro_batches={}", timetable.name, timetable.stages, timetable.micro_batches);
  if (timetable.seq_chunks > 1) out += fmt::format(" seq_chunks={}", timetable.seq_chunks);
  out += '\n';
  for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
    out += fmt::format("crew {}:", crew);
    for (const Unit& unit : timetable.crews[crew]) out += ' ' + to_string(unit, timetable.seq_chunks);
    out += '\n';
  }
  return out;
}

Timetable parse_timetable(std::string_view text) {
  Timetable out;
  bool headed = false;
  int number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    if (line.ends_with('\r')) line.remove_suffix(1);
    line = trim(line);
    text.remove_prefix(
        std::min(text.size(), text.find('\n') == std::string_view::npos ? text.size() : text.find('\n') + 1));
    ++number;
    if (line.empty() || line[0] == '#') continue;
    if (!headed) {
      parse_head(line, number, out);
      headed = true;
      continue;
    }
    const size_t colon = line.find(':');
    require(colon != std::string_view::npos && line.substr(0, colon) == fmt::format("crew {}", out.crews.size()),
            "timetable line {}: it begins with 'crew {}:', the crews being numbered in order (got '{}')", number,
            out.crews.size(), line.substr(0, std::min<size_t>(line.size(), 20)));
    std::vector<Unit>& crew = out.crews.emplace_back();
    for (const std::string_view word : split_words(line.substr(colon + 1))) {
      const std::optional<Unit> unit = parse_unit(word, out.seq_chunks);
      require(unit.has_value(), "timetable line {}: '{}' is no unit; one is F, B, I or W and {}, as F0.{}", number,
              word, out.seq_chunks > 1 ? "stage.micro_batch.chunk" : "stage.micro_batch",
              out.seq_chunks > 1 ? "1.2" : "1");
      crew.push_back(*unit);
    }
  }
  require(headed, "timetable: there is no line 'timetable NAME stages=S micro_batches=M'");
  return out;
}

void check(const Timetable& timetable) {
  check_units(timetable, false);
  check_order(timetable);
}

void check_forward(const Timetable& timetable) {
  check_units(timetable, true);
  check_order(timetable);
}

UnitIndex::UnitIndex(const Timetable& timetable)
    : stages_(timetable.stages), micro_batches_(timetable.micro_batches), seq_chunks_(timetable.seq_chunks) {
  places_.resize(kPasses.size() * static_cast<size_t>(stages_) * static_cast<size_t>(micro_batches_) *
                 static_cast<size_t>(seq_chunks_));
  for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
    for (size_t i = 0; i < timetable.crews[crew].size(); ++i) {
      const Unit& unit = timetable.crews[crew][i];
      if (is_within(unit, timetable)) places_[index_of(unit)] = {static_cast<int>(crew), static_cast<int>(i)};
    }
  }
}

size_t UnitIndex::index_of(const Unit& unit) const {
  const auto size = [](int value) { return static_cast<size_t>(value); };
  return ((size(static_cast<int>(unit.pass)) * size(stages_) + size(unit.stage)) * size(micro_batches_) +
          size(unit.micro_batch)) *
             size(seq_chunks_) +
         size(unit.seq_chunk);
}

// The part of a unit's backward pass for which others wait.
Unit UnitIndex::gradient_of(Unit unit) const {
  unit.pass = Unit::Pass::kBackward;
  if (place_of(unit).crew < 0) unit.pass = Unit::Pass::kInputGrad;
  return unit;
}

UnitNeeds UnitIndex::needs_of(const Unit& unit) const {
  UnitNeeds out;
  if (unit.pass == Unit::Pass::kWeightGrad) {
    out.add(with(unit, Unit::Pass::kInputGrad));
    return out;
  }
  const bool forward = unit.pass == Unit::Pass::kForward;
  if (!forward) out.add(with(unit, Unit::Pass::kForward));
  const auto add = [&](const Unit& other) { out.add(forward ? other : gradient_of(other)); };
  Unit other = unit;
  other.stage += forward ? -1 : 1;
  if (other.stage >= 0 && other.stage < stages_) add(other);
  other = unit;
  other.seq_chunk += forward ? -1 : 1;
  if (other.seq_chunk >= 0 && other.seq_chunk < seq_chunks_) add(other);
  return out;
}

std::vector<int> crews_of_stages(const Timetable& timetable) {
  std::vector<int> out(static_cast<size_t>(timetable.stages), -1);
  for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
    for (const Unit& unit : timetable.crews[crew]) out.at(static_cast<size_t>(unit.stage)) = static_cast<int>(crew);
  }
  return out;
}

}  // namespace trireme

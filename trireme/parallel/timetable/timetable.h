// Timetables: in which order each crew (the ranks that hold a stage of a pipeline) works through the units of a step.
// A timetable is data: made by a schedule (schedules.h), read from a file, checked, run in virtual time
// (timetable_time.h), printed; nothing else knows which schedule it came from.
//
// The text form has a head and a line for each crew, its units in order:
//
//     timetable 1f1b stages=2 micro_batches=2
//     crew 0: F0.0 F0.1 B0.0 B0.1
//     crew 1: F1.0 B1.0 F1.1 B1.1
//
// F is a forward pass, B a backward pass, of a stage and a micro-batch. A backward pass may be cut in two: I, the
// gradients of the stage's inputs, for which the stage before waits, and W, those of its weights, for which nobody
// does. Where micro-batches are cut along their positions as well ("seq_chunks=4" in the head) the chunk is a third
// number: F0.1.3. Empty lines and those that begin with # are left out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct Unit {
  enum class Pass : uint8_t { kForward, kBackward, kInputGrad, kWeightGrad };
  Pass pass = Pass::kForward;
  int stage = 0;
  int micro_batch = 0;
  int seq_chunk = 0;
  friend bool operator==(const Unit&, const Unit&) = default;
  friend auto operator<=>(const Unit&, const Unit&) = default;
};

inline constexpr int64_t kMostUnits = int64_t{1} << 22;  // of each kind, in a whole timetable

struct Timetable {
  std::string name;  // of the schedule; one word
  int stages = 1;
  int micro_batches = 1;
  int seq_chunks = 1;  // of each micro-batch
  std::vector<std::vector<Unit>> crews;
  friend bool operator==(const Timetable&, const Timetable&) = default;
};

std::string to_string(const Unit& unit, int seq_chunks = 1);  // "F3.0"
std::string to_string(const Timetable& timetable);

// Throws kInvalidArgument with the line for text that is no timetable. It need not be one that can run: check says.
Timetable parse_timetable(std::string_view text);

// Throws kInvalidArgument, naming the unit and the crew, for a timetable that
//  - forgets a unit, names one twice, or one that there is not; or gives a stage's units to several crews;
//  - has both a whole backward pass and one in two parts of the same unit;
//  - cannot be run: units wait for each other in a circle, a unit stands before one of its own crew that it needs.
void check(const Timetable& timetable);
// The same of forward passes alone.
void check_forward(const Timetable& timetable);

// What has to be done before a unit can start.
struct UnitNeeds {
  std::array<Unit, 3> units;
  size_t count = 0;
  void add(const Unit& unit) { units[count++] = unit; }
  const Unit* begin() const { return units.data(); }
  const Unit* end() const { return units.data() + count; }
};

// Where each unit stands, and what it needs.
class UnitIndex {
 public:
  struct Place {
    int crew = -1;  // -1: the timetable has no such unit
    int at = 0;     // in the crew's order
  };
  // Units that the head's numbers do not allow are left out.
  explicit UnitIndex(const Timetable& timetable);

  Place place_of(const Unit& unit) const { return places_[index_of(unit)]; }
  // The stage's operand, the gradient of its result, its own forward pass, earlier positions' keys and values (later
  // positions' gradients of them). A gradient comes from a whole backward pass or its first part, as the timetable has
  // it.
  UnitNeeds needs_of(const Unit& unit) const;

 private:
  size_t index_of(const Unit& unit) const;
  Unit gradient_of(Unit unit) const;

  int stages_, micro_batches_, seq_chunks_;
  std::vector<Place> places_;
};

// The crew of each stage, by its units.
std::vector<int> crews_of_stages(const Timetable& timetable);

}  // namespace trireme

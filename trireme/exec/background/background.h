// Background: the work of an action that runs beside the actions after it, bound to its memory: a collective, a
// message, a move between tiers.
#pragma once

#include <chrono>

namespace trireme {

class Background {
 public:
  virtual ~Background() = default;
  // Called before start(): brings what the work reads to where it reads it. May wait for this rank's device.
  virtual void prepare() {}
  virtual void start() = 0;               // does not wait for other ranks
  virtual void wait() = 0;                // ends what start began; nothing to do when nothing was started
  virtual bool is_under_way() const = 0;  // started and not yet waited for
  // When the last of what was waited for had come; the clock's epoch when nothing was sent.
  virtual std::chrono::steady_clock::time_point ended() const = 0;
};

}  // namespace trireme

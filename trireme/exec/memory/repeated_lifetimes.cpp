#include "trireme/exec/memory/repeated_lifetimes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace trireme {
namespace {

// Buffers [begin, end), in the order of their first steps, of which each is there again `count` later, `steps` later.
struct Run {
  size_t begin = 0, end = 0;
  size_t count = 0;
  int steps = 0;

  int times() const { return static_cast<int>((end - begin) / count); }
};

class Repeats {
 public:
  explicit Repeats(std::span<const Lifetime> all) : all_(all), order_(all.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::ranges::sort(order_, [&](size_t a, size_t b) {
      const auto key = [&](size_t id) { return std::tuple(all_[id].first, all_[id].last, all_[id].bytes, id); };
      return key(a) < key(b);
    });
  }

  std::optional<RepeatedLifetimes> run() {
    if (!find_run()) return std::nullopt;
    choose_distance();
    if (!choose_cut()) return std::nullopt;
    return shorter();
  }

 private:
  const Lifetime& at(size_t place) const { return all_[order_[place]]; }

  static bool is_later(const Lifetime& a, const Lifetime& b, int steps) {
    return b.bytes == a.bytes && b.first == a.first + steps && b.last == a.last + steps;
  }

  bool find_run() {
    const size_t middle = all_.size() / 2;
    for (size_t count = 1; count <= all_.size() / 8; ++count) {
      const int steps = at(middle + count).first - at(middle).first;
      const auto same = [&](size_t place) { return is_later(at(place), at(place + count), steps); };
      if (steps <= 0 || !same(middle)) continue;
      run_ = {middle, middle, count, steps};
      while (run_.begin > 0 && same(run_.begin - 1)) --run_.begin;
      while (run_.end + count < all_.size() && same(run_.end)) ++run_.end;
      run_.end += count;
      if (2 * (run_.end - run_.begin) >= all_.size()) return true;
    }
    return false;
  }

  int times_alive(size_t of_time) const {
    const Lifetime& buffer = at(run_.begin + of_time);
    return (buffer.last - buffer.first) / run_.steps + 1;
  }

  // After how many times places are used again: as many as most of what lives from one time to others, by its bytes, is
  // alive at once, so that it lies tight, or twice as many where anything lives longer.
  void choose_distance() {
    std::map<int, int64_t> bytes;
    int most = 1;
    for (size_t i = 0; i < run_.count; ++i) {
      const int times = times_alive(i);
      most = std::max(most, times);
      if (times > 1) bytes[times] += at(run_.begin + i).bytes / 64 * times;
    }
    const auto by_bytes = std::ranges::max_element(bytes, {}, [](const auto& each) { return each.second; });
    const int usual = bytes.empty() ? 1 : by_bytes->first;
    distance_ = most <= usual ? usual : most <= 2 * usual ? 2 * usual : most;
    reach_ = most + 1;
  }

  // Times [cut_, cut_ + left_out_) are left out.
  bool choose_cut() {
    cut_ = distance_ + reach_;
    left_out_ = run_.times() - cut_ - reach_;
    left_out_ -= left_out_ % distance_;
    if (left_out_ <= 0 || 3 * static_cast<size_t>(left_out_) * run_.count < all_.size()) return false;
    cut_step_ = at(first_of(cut_)).first;
    // What is in use longer than its time, and ends in what is left out, would have no end.
    for (size_t place = 0; place < run_.begin; ++place) {
      if (at(place).last >= cut_step_ && at(place).last < cut_step_ + steps_left_out()) return false;
    }
    return true;
  }
  size_t first_of(int time) const { return run_.begin + static_cast<size_t>(time) * run_.count; }
  int steps_left_out() const { return left_out_ * run_.steps; }

  RepeatedLifetimes shorter() const {
    RepeatedLifetimes out;
    out.as.resize(all_.size());
    std::map<std::pair<size_t, int>, size_t> group_of;  // by place in its time, and the time
    const size_t from = first_of(cut_), to = first_of(cut_ + left_out_);
    for (size_t place = 0; place < all_.size(); ++place) {
      if (place >= from && place < to) continue;
      Lifetime buffer = at(place);
      const bool is_after = place >= to;
      if (is_after) buffer.first -= steps_left_out();
      if (is_after || (place < run_.begin && buffer.last >= cut_step_)) buffer.last -= steps_left_out();
      const size_t id = out.lifetimes.size();
      out.lifetimes.push_back(buffer);
      out.as[order_[place]] = id;
      const size_t here = is_after ? place - (to - from) : place;
      if (here < run_.begin || here >= first_of(cut_ + reach_)) {
        out.groups.push_back({id});
        continue;
      }
      const size_t in_time = (here - run_.begin) % run_.count;
      const int time = static_cast<int>((here - run_.begin) / run_.count);
      const auto [known, is_new] = group_of.emplace(std::pair(in_time, time % distance_), out.groups.size());
      if (is_new) out.groups.emplace_back();
      out.groups[known->second].push_back(id);
    }
    for (size_t place = from; place < to; ++place) {
      const int time = static_cast<int>((place - from) / run_.count) % distance_;
      const size_t like = first_of(cut_ - distance_ + time) + (place - from) % run_.count;
      out.as[order_[place]] = out.as[order_[like]];
    }
    return out;
  }

  std::span<const Lifetime> all_;
  std::vector<size_t> order_;
  Run run_;
  int distance_ = 1;  // times until a place is used again
  int reach_ = 1;     // times that two buffers in use at once are apart, at most
  int cut_ = 0;
  int left_out_ = 0;
  int cut_step_ = 0;
};

}  // namespace

std::optional<RepeatedLifetimes> repeated_lifetimes(std::span<const Lifetime> buffers) {
  if (buffers.size() < 64) return std::nullopt;
  return Repeats(buffers).run();
}

}  // namespace trireme

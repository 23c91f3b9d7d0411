#include "trireme/pass/bucket_model.h"

#include <algorithm>
#include <limits>

namespace trireme {
namespace {

// Calls `fn(j, bytes)` for each first member j of a bucket that may end with member i, the nearest first.
template <class Fn>
void each_bucket_to(std::span<const BucketMember> members, size_t i, const BucketModel& model, Fn&& fn) {
  int64_t bytes = 0;
  for (size_t j = i + 1; j-- > 0;) {
    bytes += members[j].bytes;
    if (members[j].last < i || (j<i&& static_cast<double>(bytes)> model.most_bytes())) return;
    fn(j, bytes);
  }
}

}  // namespace

std::vector<size_t> best_buckets(std::span<const BucketMember> members, const BucketModel& model) {
  std::vector<double> ends(members.size() + 1, std::numeric_limits<double>::infinity());
  ends[0] = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    each_bucket_to(members, i, model, [&](size_t j, int64_t bytes) {
      ends[i + 1] = std::min(ends[i + 1], std::max(ends[j], members[i].ready_s) + model.seconds(bytes, j < i));
    });
  }
  std::vector<size_t> out;
  double deadline = ends.back();
  for (size_t end = members.size(); end > 0;) {
    const double limit = deadline + 1e-12 * deadline;  // sums in another order differ in their last bits
    size_t first = end - 1;
    double before = 0, least_s = std::numeric_limits<double>::infinity();
    each_bucket_to(members, end - 1, model, [&](size_t j, int64_t bytes) {
      const double seconds = model.seconds(bytes, j + 1 < end);
      const double packing_s = j + 1 < end ? static_cast<double>(bytes) * model.packing_s_per_byte : 0;
      const double extra_s = packing_s - static_cast<double>(end - 1 - j) * model.start_s;
      if (std::max(ends[j], members[end - 1].ready_s) + seconds > limit || extra_s > least_s) return;
      first = j;
      least_s = extra_s;
      before = limit - seconds;
    });
    out.push_back(end);
    end = first;
    deadline = before;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

double end_of(std::span<const BucketMember> members, std::span<const size_t> buckets, const BucketModel& model) {
  double end_s = 0;
  size_t first = 0;
  for (const size_t end : buckets) {
    int64_t bytes = 0;
    for (size_t i = first; i < end; ++i) bytes += members[i].bytes;
    end_s = std::max(end_s, members[end - 1].ready_s) + model.seconds(bytes, end - first > 1);
    first = end;
  }
  return end_s;
}

}  // namespace trireme

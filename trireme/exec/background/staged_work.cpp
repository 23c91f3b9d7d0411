#include "trireme/exec/background/staged_work.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/exec/memory/memory_plan.h"

namespace trireme {
namespace {

// Bytes in device memory, and where they lie in the staging.
struct Staged {
  View bytes;
  int64_t offset = 0;
};

View bytes_of(const View& view) {
  return view.with({DType::kU8, {view.bytes()}});
}

// Of those in device memory, one for each place, with the longest of the views there.
std::vector<Staged> places_of(std::span<const View> in, std::span<const View> out) {
  std::vector<Staged> places;
  for (const std::span<const View> views : {in, out}) {
    for (const View& view : views) {
      if (view.memory == Memory::kHost) continue;
      const auto same = [&](const Staged& other) { return other.bytes.data == view.data; };
      const auto found = std::ranges::find_if(places, same);
      if (found == places.end()) {
        places.push_back({bytes_of(view)});
      } else if (found->bytes.bytes() < view.bytes()) {
        found->bytes = bytes_of(view);
      }
    }
  }
  std::ranges::sort(places, {}, [](const Staged& place) { return place.bytes.data; });
  return places;
}

}  // namespace

Staging stage(std::span<const View> in, std::span<const View> out, std::span<std::byte> scratch, int64_t work_bytes) {
  std::vector<Staged> places = places_of(in, out);
  int64_t end = 0;
  size_t last = 0;  // of the places so far, the one that reaches farthest in device memory; others may lie inside it
  const auto end_of = [](const Staged& place) { return place.bytes.data + place.bytes.bytes(); };
  for (size_t i = 0; i < places.size(); ++i) {
    Staged& place = places[i];
    // A gap of one alignment keeps apart what is apart (joined in communication_bytes.h).
    place.offset = i == 0 ? 0 : end + kBufferAlignment;
    if (i > 0 && place.bytes.data - end_of(places[last]) < kBufferAlignment) {
      place.offset = places[last].offset + (place.bytes.data - places[last].bytes.data);
    }
    end = std::max(end, align_buffer(place.offset + place.bytes.bytes()));
    if (end_of(place) > end_of(places[last])) last = i;
  }
  const auto all = static_cast<int64_t>(scratch.size());
  invariant(end + work_bytes <= all, "{} bytes are to be staged, and {} used besides, in {}", end, work_bytes, all);

  const auto on_host = [&](const View& view) {
    if (view.memory == Memory::kHost) return view;
    const auto place = std::ranges::find_if(places, [&](const Staged& p) { return p.bytes.data == view.data; });
    return View{scratch.data() + place->offset, view.type};
  };
  const auto add = [](std::vector<std::pair<View, View>>& copies, const View& from, const View& to) {
    if (from.memory == to.memory) return;
    const bool is_there = std::ranges::any_of(
        copies, [&](const auto& copy) { return copy.first.data == from.data && copy.first.bytes() >= from.bytes(); });
    if (!is_there) copies.emplace_back(from, to);
  };
  Staging staging;
  staging.scratch = scratch.last(static_cast<size_t>(work_bytes));
  for (const View& view : in) {
    staging.in.push_back(on_host(view));
    add(staging.outward, view, staging.in.back());
  }
  for (const View& view : out) {
    staging.out.push_back(on_host(view));
    add(staging.inward, staging.out.back(), view);
  }
  return staging;
}

StagedWork::StagedWork(std::unique_ptr<Background> work, Staging staging, Device& device, const CopyStreams& streams)
    : work_(std::move(work)),
      staging_(std::move(staging)),
      streams_(streams),
      computed_(device.event()),
      arrived_(device.event()) {}

void StagedWork::prepare() {
  streams_.compute.record(*computed_);
  streams_.outward.wait(*computed_);
  for (const auto& [from, to] : staging_.outward) streams_.outward.copy(from, to);
  streams_.outward.synchronize();
  // The staging may be that of work before, whose results are still on their way out of it.
  streams_.inward.synchronize();
}

void StagedWork::start() {
  started_ = true;
  work_->start();
}

void StagedWork::wait() {
  if (!started_) return;
  started_ = false;
  work_->wait();
  streams_.inward.wait(*computed_);
  for (const auto& [from, to] : staging_.inward) streams_.inward.copy(from, to);
  streams_.inward.record(*arrived_);
  streams_.compute.wait(*arrived_);
}

}  // namespace trireme

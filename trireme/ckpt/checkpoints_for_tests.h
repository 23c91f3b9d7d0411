// What the tests of this folder share: ranks as threads, random layouts, tensors with known
// content.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/ckpt/checkpoint.h"

namespace trireme::ckpt {

// The disk without waiting for it: durability is tested with the FailingDisk of crash_test.cpp.
class QuickDisk : public Disk {
 public:
  void sync(int, const std::string&) override {}
  void sync_directory(const std::string&) override {}
};

struct Caught {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text = "no error";
};

template <class F>
Caught caught(F f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.kind(), e.text()};
  }
  return {};
}

inline HostTensor filled(const TensorType& type, uint64_t id) {
  HostTensor out(type);
  const auto raw = out.view().raw();
  std::vector<uint32_t> words(raw.size() / 4 + 1);
  fill_random_bits({1, id}, 0, 0, words);
  std::copy_n(std::as_bytes(std::span(words)).begin(), raw.size(), raw.begin());
  return out;
}

inline HostTensor part_of(const HostTensor& whole, const Box& box) {
  HostTensor out({whole.type().dtype, box.size});
  copy_region(whole.view(), Box::whole(whole.shape()), out.view(), box, box);
  return out;
}

inline bool is_equal(const HostTensor& a, const HostTensor& b) {
  return a.type() == b.type() && std::ranges::equal(a.view().raw(), b.view().raw());
}

using Shared = std::shared_ptr<const HostTensor>;

inline Shared shared(HostTensor tensor) {
  return std::make_shared<const HostTensor>(std::move(tensor));
}

// A tensor of the model, and which boxes it is written in, by which rank.
struct Cut {
  std::string name;
  Shared whole;
  std::vector<Box> boxes;
  std::vector<int> writer;
  std::string role = "param";
};

// Saves as `world` ranks, which are threads; rethrows rank 0's error.
struct World {
  explicit World(int ranks) : world(ranks), meet(ranks), texts(static_cast<size_t>(ranks)) {}

  std::vector<Caught> save_all(const std::string& root, const std::vector<Cut>& cuts, const SaveInfo& info,
                               const std::vector<Disk*>& disks) {
    std::vector<Caught> errors(static_cast<size_t>(world));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        std::vector<HostTensor> data;
        std::vector<Piece> pieces;
        for (const Cut& cut : cuts) {
          for (size_t i = 0; i < cut.boxes.size(); ++i) {
            if (cut.writer[i] != rank) continue;
            data.push_back(part_of(*cut.whole, cut.boxes[i]));
            pieces.push_back({cut.name, cut.role, cut.whole->shape(), cut.boxes[i], data.back().view()});
          }
        }
        Peers peers{rank, world, [&, rank](const std::string& text) {
                      texts[static_cast<size_t>(rank)] = text;
                      meet.arrive_and_wait();
                      auto all = texts;
                      meet.arrive_and_wait();
                      return all;
                    }};
        errors[static_cast<size_t>(rank)] =
            caught([&] { save(root, pieces, info, peers, *disks[static_cast<size_t>(rank)]); });
      });
    }
    for (auto& thread : threads) thread.join();
    return errors;
  }

  void save_or_throw(const std::string& root, const std::vector<Cut>& cuts, const SaveInfo& info) {
    QuickDisk quick;
    for (const Caught& e : save_all(root, cuts, info, std::vector<Disk*>(static_cast<size_t>(world), &quick))) {
      ASSERT_EQ(e.text, "no error");
    }
  }

  int world;
  std::barrier<> meet;
  std::vector<std::string> texts;
};

// Cuts every dimension at random places, unevenly; gives each box to a random rank.
inline Cut random_cut(const std::string& name, const Shared& whole, int world, uint64_t seed) {
  uint64_t drawn = 0;
  const auto random = [&](int64_t below) {
    return static_cast<int64_t>(random_bits({seed, 77}, drawn++, 0) % static_cast<uint64_t>(below));
  };
  Cut out{name, whole, {Box::whole(whole->shape())}, {}};
  for (int dim = 0; dim < whole->shape().rank(); ++dim) {
    std::vector<Box> next;
    const int64_t size = whole->shape()[dim];
    std::vector<int64_t> at = {0, size};
    for (int64_t k = random(4); k > 0 && size > 0; --k) at.push_back(random(size + 1));
    std::sort(at.begin(), at.end());
    for (const Box& box : out.boxes) {
      for (size_t i = 0; i + 1 < at.size(); ++i) {
        Box piece = box;
        piece.start[dim] = at[i];
        piece.size[dim] = at[i + 1] - at[i];
        if (piece.size[dim] > 0 || size == 0) next.push_back(piece);
      }
    }
    out.boxes = next;
  }
  for (size_t i = 0; i < out.boxes.size(); ++i) out.writer.push_back(static_cast<int>(random(world)));
  return out;
}

}  // namespace trireme::ckpt

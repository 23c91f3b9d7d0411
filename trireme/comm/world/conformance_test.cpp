// What every transport promises, checked against plain computations.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "trireme/comm/comm.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::comm::conformance_test {
namespace {

class EveryTransport : public testing::TestWithParam<std::string> {
 protected:
  void spawn(int size, const std::function<void(World&)>& body) { spawn_ranks(size, GetParam(), body); }
};

INSTANTIATE_TEST_SUITE_P(Comm, EveryTransport, testing::ValuesIn(transports_of_threads()),
                         [](const auto& instance) { return instance.param; });

// The value of element i on rank r: small whole numbers, so that every type holds their sums
// exactly.
int64_t value_of(int rank, int64_t i) {
  return (i * 7 + rank * 3) % 11;
}

template <class T>
T from_int(int64_t x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

template <class T>
double to_double(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return static_cast<float>(x);
  } else {
    return static_cast<double>(x);
  }
}

template <class T>
HostTensor filled(int rank, int64_t count) {
  HostTensor out(TensorType{dtype_of<T>, Shape{count}});
  for (int64_t i = 0; i < count; ++i) out.as<T>()[static_cast<size_t>(i)] = from_int<T>(value_of(rank, i));
  return out;
}

int64_t expected(Reduce op, int size, int64_t i) {
  int64_t out = value_of(0, i);
  for (int r = 1; r < size; ++r) {
    const int64_t x = value_of(r, i);
    out = op == Reduce::kSum ? out + x : op == Reduce::kMax ? std::max(out, x) : std::min(out, x);
  }
  return out;
}

// The index of the first element that is not wanted(i), or -1.
template <class T, class Wanted>
int64_t first_wrong(std::span<T> got, Wanted wanted) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (to_double(got[i]) != static_cast<double>(wanted(static_cast<int64_t>(i)))) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

// The tensor's bytes in memory that peers can reach, or as they are.
View placed(World& world, const HostTensor& tensor, bool in_arena) {
  if (!in_arena) return tensor.view();
  const std::span<std::byte> room = world.allocate(static_cast<size_t>(tensor.view().bytes()) + 64);
  std::memcpy(room.data(), tensor.view().data, static_cast<size_t>(tensor.view().bytes()));
  return {room.data(), tensor.type()};
}

template <class T>
void check_all_reduce(World& world, int64_t count, Reduce op, bool in_arena) {
  const HostTensor tensor = filled<T>(world.rank(), count);
  const View view = placed(world, tensor, in_arena);

  world.all().all_reduce(view, op).wait();

  const auto wanted = [&](int64_t i) { return expected(op, world.size(), i); };
  ASSERT_EQ(-1, first_wrong(view.as<T>(), wanted))
      << to_string(dtype_of<T>) << " count " << count << " rank " << world.rank();
}

template <class T>
void check_reductions(World& world, int64_t count, bool in_arena) {
  for (const Reduce op : {Reduce::kSum, Reduce::kMax, Reduce::kMin}) {
    check_all_reduce<T>(world, count, op, in_arena);
    const HostTensor tensor = filled<T>(world.rank(), count * world.size());
    const View in = placed(world, tensor, in_arena);
    const HostTensor out(TensorType{dtype_of<T>, Shape{count}});
    world.all().reduce_scatter(in, out.view(), op).wait();
    const auto wanted = [&](int64_t i) { return expected(op, world.size(), world.rank() * count + i); };
    ASSERT_EQ(-1, first_wrong(out.as<T>(), wanted)) << "reduce_scatter " << to_string(dtype_of<T>);
  }
}

TEST_P(EveryTransport, AllTypesReduceToTheSumMaxAndMinOfAllRanks) {
  spawn(3, [](World& world) {
    for (const bool in_arena : {false, true}) {
      for (const int64_t count : {0, 1, 7, 5000}) {
        check_reductions<float>(world, count, in_arena);
        check_reductions<double>(world, count, in_arena);
        check_reductions<BFloat16>(world, count, in_arena);
        check_reductions<int8_t>(world, count, in_arena);
        check_reductions<uint8_t>(world, count, in_arena);
        check_reductions<int32_t>(world, count, in_arena);
        check_reductions<int64_t>(world, count, in_arena);
      }
    }
  });
}

TEST_P(EveryTransport, AllReduceIsRightWhereSomeOperandsAreInSharedMemory) {
  spawn(3, [](World& world) {
    for (int call = 0; call < 12; ++call) {
      for (const int64_t count : {3, 200, 1000, 1024, 40'001}) {
        const HostTensor tensor = filled<float>(world.rank(), count);
        const View shared = placed(world, tensor, true);  // all ranks allocate
        const View view = (world.rank() + call) % 4 == 0 ? shared : tensor.view();
        world.all().all_reduce(view, Reduce::kSum).wait();
        const auto wanted = [&](int64_t i) { return expected(Reduce::kSum, world.size(), i); };
        ASSERT_EQ(-1, first_wrong(view.as<float>(), wanted))
            << "count " << count << " call " << call << " rank " << world.rank();
      }
    }
  });
}

TEST_P(EveryTransport, AllReduceIsRightForOneToEightRanks) {
  for (int size = 1; size <= 8; ++size) {
    spawn(size, [](World& world) {
      for (const bool in_arena : {false, true}) {
        for (const int64_t count : {1, 3, 1023, 40'001, 300'007}) {
          check_all_reduce<float>(world, count, Reduce::kSum, in_arena);
        }
      }
    });
  }
}

TEST_P(EveryTransport, AllGatherPutsThePiecesInRankOrder) {
  for (const int size : {2, 3, 5, 8}) {
    spawn(size, [](World& world) {
      for (const bool in_arena : {false, true}) {
        for (const int64_t count : {0, 1, 9, 3000, 150'001}) {
          const HostTensor in = filled<int32_t>(world.rank(), count);
          const HostTensor out(TensorType{DType::kI32, Shape{world.size(), count}});
          const View to = placed(world, out, in_arena);
          world.all().all_gather(in.view(), to).wait();
          const auto wanted = [&](int64_t i) { return value_of(static_cast<int>(i / count), i % count); };
          ASSERT_EQ(-1, first_wrong(to.as<int32_t>(), wanted)) << count;
        }
      }
    });
  }
}

TEST_P(EveryTransport, AllGatherAndReduceScatterWorkInPlace) {
  spawn(4, [](World& world) {
    for (const int64_t count : {5, 70'000}) {
      const HostTensor whole(TensorType{DType::kF32, Shape{4, count}});
      const size_t begin = static_cast<size_t>(world.rank() * count);
      for (int64_t i = 0; i < count; ++i) {
        whole.as<float>()[begin + static_cast<size_t>(i)] = static_cast<float>(value_of(world.rank(), i));
      }
      const View view = placed(world, whole, true);
      const View piece{view.data + world.rank() * count * 4, TensorType{DType::kF32, Shape{count}}};
      world.all().all_gather(piece, view).wait();
      for (int r = 0; r < 4; ++r) {
        ASSERT_EQ(view.as<float>()[static_cast<size_t>((r + 1) * count - 1)],
                  static_cast<float>(value_of(r, count - 1)));
      }
      world.all().reduce_scatter(view, piece, Reduce::kSum).wait();
      ASSERT_EQ(piece.as<float>()[0], 4 * static_cast<float>(value_of(world.rank(), 0)));
      world.all().barrier().wait();
    }
  });
}

TEST_P(EveryTransport, AllToAllSwapsPieces) {
  for (const int size : {2, 3, 8}) {
    spawn(size, [](World& world) {
      for (const bool in_arena : {false, true}) {
        for (const int64_t count : {0, 1, 5, 50'001}) {
          const int64_t p = world.size();
          const HostTensor tensor = filled<uint8_t>(world.rank(), count * p);
          const View in = placed(world, tensor, in_arena);
          const HostTensor out(TensorType{DType::kU8, Shape{count * p}});
          world.all().all_to_all(in, out.view()).wait();
          const auto wanted = [&](int64_t i) {
            return value_of(static_cast<int>(i / count), world.rank() * count + i % count);
          };
          ASSERT_EQ(-1, first_wrong(out.as<uint8_t>(), wanted)) << count;
        }
      }
    });
  }
}

TEST_P(EveryTransport, RingShiftHandsPiecesOnByAnyNumberOfPlaces) {
  for (const int size : {1, 2, 3, 8}) {
    spawn(size, [](World& world) {
      for (const bool in_arena : {false, true}) {
        for (const int64_t count : {0, 1, 400'003}) {
          for (int by = 1 - world.size(); by < world.size(); by += 2) {
            const HostTensor tensor = filled<float>(world.rank(), count);
            const View in = placed(world, tensor, in_arena);
            const HostTensor out(TensorType{DType::kF32, Shape{count}});
            world.all().ring_shift(in, out.view(), by).wait();
            const int from = (world.rank() - by + world.size()) % world.size();
            const auto wanted = [&](int64_t i) { return value_of(from, i); };
            ASSERT_EQ(-1, first_wrong(out.as<float>(), wanted)) << count << " by " << by;
          }
        }
      }
    });
  }
}

TEST_P(EveryTransport, BroadcastReachesAllFromEveryRoot) {
  for (const int size : {2, 5, 8}) {
    spawn(size, [](World& world) {
      for (const bool in_arena : {false, true}) {
        for (const int64_t count : {0, 1, 400'003}) {
          for (int root = 0; root < world.size(); root += 3) {
            const HostTensor tensor = filled<float>(world.rank(), count);
            const View view = placed(world, tensor, in_arena);
            world.all().broadcast(view, root).wait();
            const auto wanted = [&](int64_t i) { return value_of(root, i); };
            ASSERT_EQ(-1, first_wrong(view.as<float>(), wanted)) << count;
          }
        }
      }
    });
  }
}

TEST_P(EveryTransport, BroadcastAndGatherMoveEveryType) {
  spawn(2, [](World& world) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8, DType::kU8, DType::kI32,
                              DType::kI64, DType::kBool}) {
      const HostTensor piece(TensorType{dtype, Shape{33}});
      const HostTensor whole(TensorType{dtype, Shape{66}});
      std::memset(piece.view().data, world.rank() + 1, static_cast<size_t>(piece.view().bytes()));
      world.all().all_gather(piece.view(), whole.view()).wait();
      world.all().broadcast(whole.view(), 1).wait();
      const View bytes{whole.view().data, TensorType{DType::kU8, Shape{whole.view().bytes()}}};
      const auto wanted = [&](int64_t i) { return i < piece.view().bytes() ? 1 : 2; };
      ASSERT_EQ(-1, first_wrong(bytes.as<uint8_t>(), wanted)) << to_string(dtype);
    }
  });
}

TEST_P(EveryTransport, AMessageMayComeBeforeItIsAskedFor) {
  spawn(2, [](World& world) {
    Group& all = world.all();
    const int peer = 1 - world.rank();
    for (const int64_t count : {0, 1, 100, 5000, 1'000'003}) {
      const HostTensor out = filled<float>(world.rank(), count);
      const HostTensor in(TensorType{DType::kF32, Shape{count}});
      Work sent = all.send(out.view(), peer, 5);
      Work received = all.recv(in.view(), peer, 5);
      sent.wait();
      received.wait();
      const auto wanted = [&](int64_t i) { return value_of(peer, i); };
      ASSERT_EQ(-1, first_wrong(in.as<float>(), wanted)) << count;
    }
  });
}

TEST_P(EveryTransport, MessagesAreMatchedByTagAndKeepTheirOrder) {
  spawn(2, [](World& world) {
    constexpr int kMessages = 20;
    constexpr int64_t kCount = 3000;
    std::vector<HostTensor> tensors;
    std::vector<Work> works;
    for (int m = 0; m < kMessages; ++m) {
      HostTensor tensor(TensorType{DType::kI32, Shape{kCount}});
      tensors.push_back(tensor.clone());
    }
    if (world.rank() == 0) {
      for (int m = 0; m < kMessages; ++m) {
        std::fill_n(tensors[static_cast<size_t>(m)].as<int32_t>().data(), kCount, m);
        works.push_back(world.all().send(tensors[static_cast<size_t>(m)].view(), 1, m % 2));
      }
    } else {
      for (int m = 1; m < kMessages; m += 2) {
        world.all().recv(tensors[static_cast<size_t>(m)].view(), 0, 1).wait();
      }
      for (int m = 0; m < kMessages; m += 2) {
        works.push_back(world.all().recv(tensors[static_cast<size_t>(m)].view(), 0, 0));
      }
    }
    for (Work& work : works) work.wait();
    for (int m = 0; m < kMessages; ++m) {
      ASSERT_EQ(tensors[static_cast<size_t>(m)].as<int32_t>()[kCount - 1], m);
    }
  });
}

TEST_P(EveryTransport, ARankSendsToItself) {
  spawn(2, [](World& world) {
    const HostTensor out = filled<double>(world.rank(), 10'000);
    const HostTensor in(out.type());
    Work received = world.all().recv(in.view(), world.rank(), 0);
    world.all().send(out.view(), world.rank(), 0).wait();
    received.wait();
    ASSERT_EQ(0, std::memcmp(in.view().data, out.view().data, static_cast<size_t>(in.view().bytes())));
  });
}

TEST_P(EveryTransport, OperationsInFlightMayBeWaitedForInAnyOrder) {
  spawn(4, [](World& world) {
    std::vector<HostTensor> tensors;
    std::vector<Work> works;
    for (int k = 0; k < 8; ++k) tensors.push_back(filled<float>(world.rank() + k, 20'000));
    for (HostTensor& tensor : tensors) works.push_back(world.all().all_reduce(tensor.view(), Reduce::kSum));
    for (size_t k = 0; k < works.size(); ++k) {
      works[world.rank() % 2 == 0 ? works.size() - 1 - k : k].wait();
    }
    for (int k = 0; k < 8; ++k) {
      float sum = 0;
      for (int r = 0; r < 4; ++r) sum += static_cast<float>(value_of(r + k, 77));
      ASSERT_EQ(tensors[static_cast<size_t>(k)].as<float>()[77], sum);
    }
  });
}

TEST_P(EveryTransport, GroupsOfPairsInACycleDoNotWaitForEachOther) {
  spawn(3, [](World& world) {
    // Each rank starts first with its successor, then with its predecessor.
    const int next = (world.rank() + 1) % 3;
    const int last = (world.rank() + 2) % 3;
    Group* a = nullptr;
    Group* b = nullptr;
    for (const auto& pair : {std::pair{0, 1}, std::pair{1, 2}, std::pair{2, 0}}) {
      if (pair.first == world.rank()) a = &world.group({world.rank(), next});
      if (pair.second == world.rank()) b = &world.group({last, world.rank()});
    }
    for (const int64_t count : {100, 100'000}) {
      const HostTensor x = filled<float>(world.rank(), count);
      const HostTensor y = filled<float>(world.rank(), count);
      Work first = a->all_reduce(x.view(), Reduce::kSum);
      Work second = b->all_reduce(y.view(), Reduce::kSum);
      first.wait();
      second.wait();
      ASSERT_EQ(x.as<float>()[5], static_cast<float>(value_of(world.rank(), 5) + value_of(next, 5)));
      ASSERT_EQ(y.as<float>()[5], static_cast<float>(value_of(world.rank(), 5) + value_of(last, 5)));
    }
  });
}

TEST_P(EveryTransport, AGroupKeepsTheOrderOfItsList) {
  spawn(4, [](World& world) {
    if (world.rank() % 2 == 0) return;
    Group& group = world.group({3, 1});
    EXPECT_EQ(&group, &world.group({3, 1}));
    EXPECT_EQ(group.rank(), world.rank() == 3 ? 0 : 1);
    const HostTensor in = HostTensor::of<int32_t>({1}, std::vector<int32_t>{world.rank()});
    const HostTensor out(TensorType{DType::kI32, Shape{2}});
    group.all_gather(in.view(), out.view()).wait();
    EXPECT_EQ(out.as<int32_t>()[0], 3);
    EXPECT_EQ(out.as<int32_t>()[1], 1);
    group.broadcast(in.view(), 0).wait();
    EXPECT_EQ(in.as<int32_t>()[0], 3);
  });
}

TEST_P(EveryTransport, AllMembersGetTheSameBitsInEveryRun) {
  const auto run = [&](int64_t count, bool in_arena) {
    std::vector<std::vector<float>> results(5);
    spawn(5, [&](World& world) {
      HostTensor tensor(TensorType{DType::kF32, Shape{count}});
      for (int64_t i = 0; i < count; ++i) {
        tensor.as<float>()[static_cast<size_t>(i)] =
            std::sin(static_cast<float>(i * 5 + world.rank())) * std::pow(10.0F, static_cast<float>(world.rank()));
      }
      const View view = placed(world, tensor, in_arena);
      world.all().all_reduce(view, Reduce::kSum).wait();
      const auto values = view.as<float>();
      results[static_cast<size_t>(world.rank())].assign(values.begin(), values.end());
    });
    return results;
  };
  for (const int64_t count : {100, 90'001}) {
    std::vector<float> in_tree(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const auto x = [&](int r) {
        return std::sin(static_cast<float>(i * 5 + r)) * std::pow(10.0F, static_cast<float>(r));
      };
      in_tree[static_cast<size_t>(i)] = ((x(0) + x(1)) + (x(2) + x(3))) + x(4);
    }
    for (const bool in_arena : {false, true}) {
      const auto results = run(count, in_arena);
      for (const auto& result : results) ASSERT_EQ(result, in_tree) << count;
    }
  }
}

TEST_P(EveryTransport, Bf16IsSummedInF32AndRoundedOnce) {
  spawn(3, [](World& world) {
    // 256 + 1 + 1 is 258 in bf16; rounding after each step would give 256.
    const HostTensor tensor(TensorType{DType::kBF16, Shape{10'000}});
    for (BFloat16& x : tensor.as<BFloat16>()) x = BFloat16(world.rank() == 0 ? 256.0F : 1.0F);
    world.all().all_reduce(tensor.view(), Reduce::kSum).wait();
    ASSERT_EQ(static_cast<float>(tensor.as<BFloat16>()[9'999]), 258.0F);
  });
}

TEST_P(EveryTransport, MaxAndMinKeepANaNWhereverItIs) {
  spawn(3, [](World& world) {
    const HostTensor tensor(TensorType{DType::kF32, Shape{3}});
    tensor.as<float>()[static_cast<size_t>(world.rank())] = std::numeric_limits<float>::quiet_NaN();
    const HostTensor other = tensor.clone();
    world.all().all_reduce(tensor.view(), Reduce::kMax).wait();
    world.all().all_reduce(other.view(), Reduce::kMin).wait();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(std::isnan(tensor.as<float>()[i]));
      EXPECT_TRUE(std::isnan(other.as<float>()[i]));
    }
  });
}

// The values that the reference system documents.
TEST_P(EveryTransport, DocumentedAllReduceOfRanksZeroToThreeIsSix) {
  spawn(4, [](World& world) {
    const HostTensor x = HostTensor::of<float>({1}, std::vector<float>{static_cast<float>(world.rank())});
    world.all().all_reduce(x.view(), Reduce::kSum).wait();
    EXPECT_EQ(x.as<float>()[0], 6.0F);
  });
}

TEST_P(EveryTransport, DocumentedReduceScatterGivesRankRFourR) {
  spawn(4, [](World& world) {
    const HostTensor in = HostTensor::of<float>({4, 1}, std::vector<float>{0, 1, 2, 3});
    const HostTensor out(TensorType{DType::kF32, Shape{1, 1}});
    world.all().reduce_scatter(in.view(), out.view(), Reduce::kSum).wait();
    EXPECT_EQ(out.as<float>()[0], 4.0F * static_cast<float>(world.rank()));
  });
}

TEST_P(EveryTransport, DocumentedAllToAllOfEightRanksGivesZeroToSeven) {
  spawn(8, [](World& world) {
    const std::vector<int32_t> own(8, world.rank());
    const HostTensor in = HostTensor::of<int32_t>({1, 1, 8, 1}, own);
    const HostTensor out(TensorType{DType::kI32, Shape{1, 1, 1, 8}});
    world.all().all_to_all(in.view(), out.view()).wait();
    for (int32_t i = 0; i < 8; ++i) EXPECT_EQ(out.as<int32_t>()[static_cast<size_t>(i)], i);
  });
}

TEST_P(EveryTransport, DocumentedValuesHoldInTheSubGroupOfOneAndThree) {
  spawn(4, [](World& world) {
    if (world.rank() % 2 == 0) return;
    Group& group = world.group({1, 3});
    const HostTensor sum = HostTensor::of<int32_t>({1}, std::vector<int32_t>{world.rank()});
    group.all_reduce(sum.view(), Reduce::kSum).wait();
    EXPECT_EQ(sum.as<int32_t>()[0], 4);
    const HostTensor in = HostTensor::of<int32_t>({2}, std::vector<int32_t>{0, 1});
    const HostTensor out(TensorType{DType::kI32, Shape{1}});
    group.reduce_scatter(in.view(), out.view(), Reduce::kSum).wait();
    EXPECT_EQ(out.as<int32_t>()[0], 2 * group.rank());
  });
}

}  // namespace
}  // namespace trireme::comm::conformance_test

// equal, less, greater, logical_and, logical_not, select, and casts between any types: plain loops
// that the compiler makes vectors of, over runs cut into tasks.
#include <algorithm>
#include <bit>
#include <functional>

#include "trireme/backend/cpu/elements/broadcast.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/tensor/with_element.h"

namespace trireme::cpu {
namespace {

template <class T>
T value_of(T x) {
  return x;
}
float value_of(BFloat16 x) {
  return static_cast<float>(x);
}

// y = f(a, b) over the runs of a broadcast.
template <class T, class F>
void compare_runs(const KernelArgs& args, F f) {
  const T* a = args.in[0].as<T>().data();
  const T* b = args.in[1].as<T>().data();
  bool* y = args.out[0].as<bool>().data();
  if (args.out[0].elements() == 0) return;
  const Runs runs = runs_of(args.in[0].type.shape, args.in[1].type.shape, args.out[0].type.shape);
  const auto run = [&](const T* ar, const T* br, bool* yr, int64_t n) {
    if (runs.a_moves && runs.b_moves) {
      for (int64_t i = 0; i < n; ++i) yr[i] = f(value_of(ar[i]), value_of(br[i]));
    } else if (runs.a_moves) {
      for (int64_t i = 0; i < n; ++i) yr[i] = f(value_of(ar[i]), value_of(*br));
    } else {
      for (int64_t i = 0; i < n; ++i) yr[i] = f(value_of(*ar), value_of(br[i]));
    }
  };
  const int64_t pieces = (runs.length + kGrain - 1) / kGrain;
  for_range(args, runs.count * pieces, rows_per_task(runs.length), [&](int64_t item, int64_t end) {
    for (; item < end; ++item) {
      const int64_t from = item % pieces * kGrain;
      const Runs::Offsets at = runs.offsets(item / pieces);
      run(a + at.a + (runs.a_moves ? from : 0), b + at.b + (runs.b_moves ? from : 0),
          y + item / pieces * runs.length + from, std::min(kGrain, runs.length - from));
    }
  });
}

template <class F>
void compare(const KernelArgs& args) {
  with_element("compare", args.in[0].type.dtype, [&](auto zero) { compare_runs<decltype(zero)>(args, F{}); });
}

void logical_and(const KernelArgs& args) {
  compare_runs<bool>(args, [](bool a, bool b) { return a & b; });
}

void logical_not(const KernelArgs& args) {
  const bool* x = args.in[0].as<bool>().data();
  bool* y = args.out[0].as<bool>().data();
  for_range(args, args.out[0].elements(), kGrain, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) y[i] = !x[i];
  });
}

// "" when each operand has the result's shape or one element.
std::string select_why_not(const TypeArgs& args) {
  for (size_t i = 0; i < args.in.size(); ++i) {
    if (args.in[i].shape != args.out[0].shape && args.in[i].elements() != 1)
      return fmt::format("operand {} is {}, repeated in some dimensions of {} only", i, to_string(args.in[i]),
                         to_string(args.out[0]));
  }
  return any_f16(args);
}

int64_t step_of(const View& operand) {
  return operand.elements() == 1 ? 0 : 1;
}

template <class T>
T chosen(bool condition, T a, T b) {
  const T mask = static_cast<T>(-static_cast<T>(condition));
  return static_cast<T>((a & mask) | (b & ~mask));
}

// Elements of any type of the size of T. Both operands are read, so that nothing branches.
template <class T>
void select_elements(const KernelArgs& args) {
  const bool* condition = args.in[0].as<bool>().data();
  const auto* a = reinterpret_cast<const T*>(args.in[1].data);
  const auto* b = reinterpret_cast<const T*>(args.in[2].data);
  auto* y = reinterpret_cast<T*>(args.out[0].data);
  const int64_t steps[3] = {step_of(args.in[0]), step_of(args.in[1]), step_of(args.in[2])};
  const bool b_is_one = steps[0] == 1 && steps[1] == 1 && steps[2] == 0;
  const bool all_move = steps[0] == 1 && steps[1] == 1 && steps[2] == 1;
  for_range(args, args.out[0].elements(), kGrain, [&](int64_t begin, int64_t end) {
    if (b_is_one) {
      const T other = *b;
      for (int64_t i = begin; i < end; ++i) y[i] = chosen(condition[i], a[i], other);
    } else if (all_move) {
      for (int64_t i = begin; i < end; ++i) y[i] = chosen(condition[i], a[i], b[i]);
    } else {
      for (int64_t i = begin; i < end; ++i) y[i] = chosen(condition[i * steps[0]], a[i * steps[1]], b[i * steps[2]]);
    }
  });
}

void select(const KernelArgs& args) {
  switch (size_of(args.out[0].type.dtype)) {
    case 1:
      return select_elements<uint8_t>(args);
    case 2:
      return select_elements<uint16_t>(args);
    case 4:
      return select_elements<uint32_t>(args);
    default:
      return select_elements<uint64_t>(args);
  }
}

// As the reference: to whole numbers through i64, to others through f64. Small whole numbers are
// the same in f32.
template <class To, class From>
To converted(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return value_of(x) != 0;
  } else if constexpr (std::is_integral_v<To>) {
    return static_cast<To>(static_cast<int64_t>(value_of(x)));
  } else if constexpr (std::is_same_v<To, BFloat16> && sizeof(From) == 1) {
    BFloat16 exact;
    exact.bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(x)) >> 16);
    return exact;
  } else if constexpr (sizeof(From) == 1) {
    return static_cast<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return BFloat16(static_cast<float>(static_cast<double>(value_of(x))));
  } else {
    return static_cast<To>(static_cast<double>(value_of(x)));
  }
}

void cast(const KernelArgs& args) {
  with_element("cast", args.in[0].type.dtype, [&](auto from) {
    with_element("cast", args.out[0].type.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const From* x = args.in[0].as<From>().data();
      To* y = args.out[0].as<To>().data();
      for_range(args, args.out[0].elements(), kGrain, [&](int64_t i, int64_t end) {
        for (; i < end; ++i) y[i] = converted<To>(x[i]);
      });
    });
  });
}

}  // namespace

std::span<const Kernel> compare_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "cast",
          .name = "cast.loop",
          .why_not = any_f16,
          .run = cast,
          .bits = Bits::kElement,
      },
      {
          .op = "equal",
          .name = "equal.loop",
          .why_not = any_f16,
          .run = compare<std::equal_to<>>,
          .bits = Bits::kElement,
      },
      {
          .op = "less",
          .name = "less.loop",
          .why_not = any_f16,
          .run = compare<std::less<>>,
          .bits = Bits::kElement,
      },
      {
          .op = "greater",
          .name = "greater.loop",
          .why_not = any_f16,
          .run = compare<std::greater<>>,
          .bits = Bits::kElement,
      },
      {
          .op = "logical_and",
          .name = "logical_and.loop",
          .run = logical_and,
          .bits = Bits::kElement,
      },
      {
          .op = "logical_not",
          .name = "logical_not.loop",
          .run = logical_not,
          .bits = Bits::kElement,
      },
      {
          .op = "select",
          .name = "select.loop",
          .why_not = select_why_not,
          .run = select,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu

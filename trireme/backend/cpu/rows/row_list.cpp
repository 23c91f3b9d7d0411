// take_rows and put_rows of any tensors, add_rows and merge_rows of f32 and bf16 ones.
#include <algorithm>
#include <array>
#include <numeric>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/structural.h"

namespace trireme::cpu {
namespace {

int64_t bytes_of_row(const TensorType& type) {
  return type.shape[0] == 0 ? 0 : type.bytes() / type.shape[0];
}

// fn(place in the list, row of the piece, or -1 where it is not there).
template <class Fn>
void for_listed(const KernelArgs& args, Fn&& fn) {
  const std::span<const int64_t> numbers = args.in[1].as<const int64_t>();
  const int64_t start = args.in_start(0, 0);
  const int64_t rows = args.in[0].type.shape[0];
  const int64_t width = bytes_of_row(args.in[0].type) / size_of(DType::kF32);
  for_range(args, std::ssize(numbers), rows_per_task(width), [&](int64_t place, int64_t end) {
    for (; place < end; ++place) {
      const int64_t number = numbers[static_cast<size_t>(place)];
      const bool is_here = number >= start && number < start + rows;
      fn(place, is_here ? number - start : -1);
    }
  });
}

void take_rows(const KernelArgs& args) {
  const int64_t bytes = bytes_of_row(args.in[0].type);
  const std::byte* from = args.in[0].raw().data();
  std::byte* to = args.out[0].raw().data();
  for_listed(args, [&](int64_t place, int64_t row) {
    if (row < 0)
      std::fill_n(to + place * bytes, bytes, std::byte{0});
    else
      std::copy_n(from + row * bytes, bytes, to + place * bytes);
  });
}

void put_rows(const KernelArgs& args) {
  const int64_t bytes = bytes_of_row(args.in[0].type);
  const std::byte* from = args.in[2].raw().data();
  std::byte* to = args.out[0].raw().data();
  if (args.in[0].data != to) std::ranges::copy(args.in[0].raw(), to);
  for_listed(args, [&](int64_t place, int64_t row) {
    if (row >= 0) std::copy_n(from + place * bytes, bytes, to + row * bytes);
  });
}

// A zero below zero stays in the other rows.
template <class T>
void add_listed(const KernelArgs& args) {
  const int64_t width = bytes_of_row(args.in[0].type) / static_cast<int64_t>(sizeof(T));
  const T* rows = data_of<T>(args.in[2]);
  T* to = data_of<T>(args.out[0]);
  if (args.in[0].data != args.out[0].data) std::ranges::copy(args.in[0].raw(), args.out[0].raw().begin());
  for_listed(args, [&](int64_t place, int64_t row) {
    for (int64_t i = 0; row >= 0 && i < width; ++i) {
      T& sum = to[row * width + i];
      sum = stored<T>(number(sum) + number(rows[place * width + i]));
    }
  });
}

int64_t add_scratch(const TypeArgs& args, int) {
  return args.in[0].shape[0] * static_cast<int64_t>(sizeof(int32_t));
}

// Zero is added to the other rows, as a sum with the whole table does.
template <class T>
void add_rows(const KernelArgs& args) {
  const int64_t rows = args.in[0].type.shape[0];
  const int64_t width = rows == 0 ? 0 : args.in[0].elements() / rows;
  const int64_t start = args.in_start(0, 0);
  auto* const place_of = reinterpret_cast<int32_t*>(args.scratch.data());
  std::fill_n(place_of, rows, -1);
  const std::span<const int64_t> numbers = args.in[1].as<const int64_t>();
  for (size_t place = 0; place < numbers.size(); ++place) {
    const int64_t number = numbers[place];
    if (number >= start && number < start + rows) place_of[number - start] = static_cast<int32_t>(place);
  }
  const T* x = data_of<T>(args.in[0]);
  const T* listed = data_of<T>(args.in[2]);
  T* y = data_of<T>(args.out[0]);
  for_range(args, rows, rows_per_task(width), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      const T* from = x + row * width;
      T* to = y + row * width;
      if (place_of[row] < 0) {
        for (int64_t i = 0; i < width; ++i) to[i] = stored<T>(number(from[i]) + 0.0F);
      } else {
        const T* more = listed + place_of[row] * width;
        for (int64_t i = 0; i < width; ++i) to[i] = stored<T>(number(from[i]) + number(more[i]));
      }
    }
  });
}

// The entries of all lists, by number and then by list.
class Entries {
 public:
  static int64_t scratch(const TypeArgs& args, int) {
    int64_t entries = 0;
    for (size_t i = 0; i < args.in.size(); i += 2) entries += args.in[i].elements();
    return (entries + args.out[0].elements() + 1) * static_cast<int64_t>(sizeof(int32_t));
  }

  // Writes the numbers of the sum, too.
  explicit Entries(const KernelArgs& args)
      : args_(args),
        pieces_(args.attrs.as<MergeRowsAttrs>().pieces),
        order_(reinterpret_cast<int32_t*>(args.scratch.data())) {
    int32_t all = 0;
    for (size_t i = 0; i < args.in.size(); i += 2) all += static_cast<int32_t>(args.in[i].elements());
    first_ = order_ + all;
    std::iota(order_, order_ + all, 0);
    int32_t* const end = std::remove_if(order_, order_ + all, [&](int32_t entry) { return number(entry) < 0; });
    std::sort(order_, end, [&](int32_t a, int32_t b) { return std::pair(number(a), a) < std::pair(number(b), b); });
    const std::span<int64_t> numbers = args.out[0].as<int64_t>();
    std::ranges::fill(numbers, -1);
    for (int32_t* entry = order_; entry != end; ++entry) {
      if (entry != order_ && number(*entry) == number(entry[-1])) continue;
      require(rows_ < std::ssize(numbers), "merge_rows: the lists have more than {} rows together", numbers.size());
      numbers[static_cast<size_t>(rows_)] = number(*entry);
      first_[rows_++] = static_cast<int32_t>(entry - order_);
    }
    first_[rows_] = static_cast<int32_t>(end - order_);
  }

  int64_t rows() const { return rows_; }
  int64_t lists() const { return std::ssize(args_.in) / 2 * pieces_; }
  std::span<const int32_t> of(int64_t row) const {
    return {order_ + first_[row], static_cast<size_t>(first_[row + 1] - first_[row])};
  }
  int64_t list_of(int32_t entry) const {
    const auto [pair, place] = find(entry);
    const int64_t length = args_.in[pair].elements() / pieces_;
    return static_cast<int64_t>(pair) / 2 * pieces_ + place / length;
  }
  template <class T>
  const T* row_of(int32_t entry, int64_t width) const {
    const auto [pair, place] = find(entry);
    return data_of<T>(args_.in[pair + 1]) + place * width;
  }

 private:
  std::pair<size_t, int64_t> find(int32_t entry) const {
    int64_t place = entry;
    size_t pair = 0;
    for (; place >= args_.in[pair].elements(); pair += 2) place -= args_.in[pair].elements();
    return {pair, place};
  }
  int64_t number(int32_t entry) const {
    const auto [pair, place] = find(entry);
    return args_.in[pair].as<const int64_t>()[static_cast<size_t>(place)];
  }

  const KernelArgs& args_;
  int64_t pieces_;
  int32_t* order_;
  int32_t* first_ = nullptr;
  int64_t rows_ = 0;
};

constexpr int64_t kMergedColumns = 512;
constexpr int kMergeLevels = 12;  // sums of 2, 4, 8, ... lists that wait for their like, as in comm/reduce

// One row, as ranks add: neighbours first, then their sums. A list without the row adds zero, which turns the zero that
// is below zero into the other one, as a sum over ranks does.
template <class T>
class RowSum {
 public:
  RowSum(const Entries& entries, int64_t row, int64_t width, int64_t column, int64_t n)
      : entries_(entries), terms_(entries.of(row)), width_(width), column_(column), n_(n) {}

  const float* run() {
    int depth = 0;
    const auto merge = [&] {
      --depth;
      loops().f32.accumulate(n_, at(depth), at(depth - 1));
    };
    const int64_t lists = entries_.lists();
    for (int64_t pair = 0; 2 * pair < lists; ++pair) {
      begin(2 * pair, at(depth));
      if (2 * pair + 1 < lists) add(2 * pair + 1, at(depth));
      ++depth;
      for (int64_t done = pair; (done & 1) != 0; done >>= 1) merge();
    }
    while (depth > 1) merge();
    return at(0);
  }

 private:
  float* at(int level) { return levels_[static_cast<size_t>(level)].data(); }
  bool has(int64_t list) const { return next_ < terms_.size() && entries_.list_of(terms_[next_]) == list; }
  const T* take() { return entries_.row_of<T>(terms_[next_++], width_) + column_; }

  void begin(int64_t list, float* sums) {
    if (!has(list)) return std::fill_n(sums, n_, 0.0F), void();
    loops_on<T>().to_f32(n_, take(), sums);
    while (has(list)) loops_on<T>().accumulate(n_, take(), sums);
  }
  void add(int64_t list, float* sums) {
    if (!has(list)) {
      for (int64_t i = 0; i < n_; ++i) sums[i] += 0.0F;
      return;
    }
    const T* only = take();
    if (!has(list)) return loops_on<T>().accumulate(n_, only, sums);
    std::array<float, kMergedColumns> own;
    loops_on<T>().to_f32(n_, only, own.data());
    while (has(list)) loops_on<T>().accumulate(n_, take(), own.data());
    loops().f32.accumulate(n_, own.data(), sums);
  }

  const Entries& entries_;
  std::span<const int32_t> terms_;
  int64_t width_, column_, n_;
  size_t next_ = 0;
  std::array<std::array<float, kMergedColumns>, kMergeLevels> levels_;
};

template <class T>
void merge_rows(const KernelArgs& args) {
  const Entries entries(args);
  const int64_t places = args.out[1].type.shape[0];
  const int64_t width = places == 0 ? 0 : args.out[1].elements() / places;
  T* rows = data_of<T>(args.out[1]);
  for_range(args, places, rows_per_task(width), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      T* to = rows + row * width;
      if (row >= entries.rows()) {
        std::fill_n(to, width, T{});
        continue;
      }
      for (int64_t column = 0; column < width; column += kMergedColumns) {
        const int64_t n = std::min(kMergedColumns, width - column);
        RowSum<T> sum(entries, row, width, column, n);
        loops_on<T>().from_f32(n, sum.run(), to + column);
      }
    }
  });
}

std::string merge_why_not(const TypeArgs& args) {
  const int64_t lists = std::ssize(args.in) / 2 * args.attrs.as<MergeRowsAttrs>().pieces;
  if (lists > int64_t{1} << kMergeLevels) return fmt::format("there are {} lists", lists);
  return operand_not_float(args, 1);
}

}  // namespace

std::span<const Kernel> row_list_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "take_rows",
          .name = "take_rows.copy",
          .run = take_rows,
          .bits = Bits::kElement,
      },
      {
          .op = "put_rows",
          .name = "put_rows.copy",
          .run = put_rows,
          .bits = Bits::kElement,
      },
      {
          .op = "add_rows",
          .name = "add_rows.listed",
          .why_not = first_not_float,
          .run = by_storage<add_listed<float>, add_listed<Bf16>>,
          .bits = Bits::kShape,
      },
      {
          .op = "add_rows",
          .name = "add_rows.sum",
          .why_not = first_not_float,
          .scratch = add_scratch,
          .run = by_storage<add_rows<float>, add_rows<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "merge_rows",
          .name = "merge_rows.tree",
          .why_not = merge_why_not,
          .scratch = Entries::scratch,
          .run = by_storage<merge_rows<float>, merge_rows<Bf16>, 1>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu

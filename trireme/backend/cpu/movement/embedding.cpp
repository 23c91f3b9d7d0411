// embedding, embedding_grad and embedding_grad_rows of f32 and bf16 tables.
#include <algorithm>
#include <array>
#include <numeric>

#include "trireme/backend/cpu/index.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/leaves.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

int64_t checked_id(const char* op, const Indices& ids, int64_t token, int64_t vocabulary) {
  const int64_t id = ids[token];
  require(id >= 0 && id < vocabulary, "{}: id {} at position {} of a vocabulary of {}; use 0 to {}", op, id, token,
          vocabulary, vocabulary - 1);
  return id;
}

std::string embedding_why_not(const TypeArgs& args) {
  std::string reason = operand_not_float(args, 0);
  return reason.empty() ? operand_not_index(args, 1) : reason;
}

std::string embedding_grad_why_not(const TypeArgs& args) {
  std::string reason = operand_not_index(args, 0);
  return reason.empty() ? operand_not_float(args, 1) : reason;
}

template <class T>
void embedding(const KernelArgs& args) {
  const Indices ids(args.in[1]);
  const int64_t rows = args.in[0].type.shape[0];
  const int64_t width = args.in[0].type.shape[1];
  const int64_t start = args.in_start(0, 0);
  const int64_t vocabulary = args.in_whole(0)[0];
  const T* table = data_of<T>(args.in[0]);
  T* y = data_of<T>(args.out[0]);
  for_range(args, ids.size(), rows_per_task(width), [&](int64_t token, int64_t end) {
    for (; token < end; ++token) {
      const int64_t row = checked_id("embedding", ids, token, vocabulary) - start;
      T* to = y + token * width;
      if (row >= 0 && row < rows) {
        std::copy_n(table + row * width, width, to);
      } else {
        std::fill_n(to, width, T{});
      }
    }
  });
}

// The tokens of each row of the table, in their order, as chains through all tokens.
struct Chains {
  int32_t* first;  // of each row; -1: none
  int32_t* next;   // of each token

  static int64_t bytes(int64_t rows, int64_t tokens) { return (rows + tokens) * static_cast<int64_t>(sizeof(int32_t)); }
  Chains(std::span<std::byte> scratch, int64_t rows)
      : first(reinterpret_cast<int32_t*>(scratch.data())), next(first + rows) {
    std::fill_n(first, rows, -1);
  }
  void put_in_front(int64_t row, int64_t token) {
    next[token] = first[row];
    first[row] = static_cast<int32_t>(token);
  }
};

int64_t embedding_grad_scratch(const TypeArgs& args, int) {
  return Chains::bytes(args.out[0].shape[0], args.in[0].elements());
}

// The row's tokens in their order, added in f32: in the row itself, or in `room` for kColumns.
constexpr int64_t kTableColumns = 512;

template <class T>
void sum_tokens(const Chains& chains, int64_t row, int64_t width, const T* dy, float* room, T* to) {
  if (chains.first[row] < 0) {
    std::fill_n(to, width, T{});
    return;
  }
  const TensorLoops<T>& all = loops_on<T>();
  for (int64_t column = 0; column < width; column += kTableColumns) {
    const int64_t n = std::min(kTableColumns, width - column);
    float* sums = room;
    if constexpr (std::is_same_v<T, float>) sums = to + column;
    int64_t token = chains.first[row];
    all.to_f32(n, dy + token * width + column, sums);
    while ((token = chains.next[token]) >= 0) all.accumulate(n, dy + token * width + column, sums);
    if constexpr (!std::is_same_v<T, float>) all.from_f32(n, sums, to + column);
  }
}

// The same in leaves of the tokens. Leaves without a token of the row
// are left out: they would add nothing.
class LeafSums {
 public:
  explicit LeafSums(const LeafRows& tokens) : leaves_(tokens.leaves()), inner_(tokens.inner) {}

  void sum(const Chains& chains, int64_t row, int64_t width, const float* dy, float* to) {
    for (int64_t column = 0; column < width; column += kTableColumns) {
      const int64_t n = std::min(kTableColumns, width - column);
      LeafTree tree;
      const auto merge = [&](int older, int newer) { add(n, older, newer); };
      int64_t token = chains.first[row];
      for (int64_t leaf = 0; leaf < leaves_.count(); ++leaf) {
        const int place = tree.next();
        filled_[at(place)] = false;
        for (; token >= 0 && token < leaves_.begin(leaf + 1) * inner_; token = chains.next[token]) {
          if (!filled_[at(place)]) std::fill_n(sums_[at(place)].data(), n, 0.0F);
          filled_[at(place)] = true;
          loops().f32.accumulate(n, dy + token * width + column, sums_[at(place)].data());
        }
        tree.push(merge);
      }
      if (filled_[0]) {
        std::copy_n(sums_[0].data(), n, to + column);
      } else {
        std::fill_n(to + column, n, 0.0F);
      }
    }
  }

 private:
  static size_t at(int place) { return static_cast<size_t>(place); }
  void add(int64_t n, int older, int newer) {
    if (!filled_[at(newer)]) return;
    if (filled_[at(older)]) {
      loops().f32.accumulate(n, sums_[at(newer)].data(), sums_[at(older)].data());
    } else {
      std::copy_n(sums_[at(newer)].data(), n, sums_[at(older)].data());
      filled_[at(older)] = true;
    }
  }

  Leaves leaves_;
  int64_t inner_;
  std::array<std::array<float, kTableColumns>, LeafTree::kPlaces> sums_;
  std::array<bool, LeafTree::kPlaces> filled_{};
};

// The chains of the rows that are here.
Chains chains_of(const KernelArgs& args, const Indices& ids) {
  const int64_t rows = args.out[0].type.shape[0];
  const int64_t start = args.out_start(0, 0);
  const int64_t vocabulary = args.attrs.as<EmbeddingGradAttrs>().vocabulary;
  for (int64_t token = 0; token < ids.size(); ++token) checked_id("embedding_grad", ids, token, vocabulary);
  Chains chains(args.scratch, rows);
  for (int64_t token = ids.size() - 1; token >= 0; --token) {
    const int64_t row = ids[token] - start;
    if (row >= 0 && row < rows) chains.put_in_front(row, token);
  }
  return chains;
}

void embedding_grad_in_leaves(const KernelArgs& args) {
  const int64_t width = args.out[0].type.shape[1];
  const float* dy = args.in[1].as<float>().data();
  float* table = args.out[0].as<float>().data();
  const Chains chains = chains_of(args, Indices(args.in[0]));
  const LeafRows tokens = leaf_rows(args, 0, args.in[0].type.shape.rank());
  for_range(args, args.out[0].type.shape[0], rows_per_task(width), [&](int64_t row, int64_t end) {
    LeafSums sums(tokens);
    for (; row < end; ++row) sums.sum(chains, row, width, dy, table + row * width);
  });
}

std::string not_f32_gradients(const TypeArgs& args) {
  std::string reason = embedding_grad_why_not(args);
  if (!reason.empty() || args.in[1].dtype == DType::kF32) return reason;
  return fmt::format("operand 1 is {}, not f32", to_string(args.in[1]));
}

template <class T>
void embedding_grad(const KernelArgs& args) {
  const int64_t width = args.out[0].type.shape[1];
  const T* dy = data_of<T>(args.in[1]);
  T* table = data_of<T>(args.out[0]);
  const Chains chains = chains_of(args, Indices(args.in[0]));
  for_range(args, args.out[0].type.shape[0], rows_per_task(width), [&](int64_t row, int64_t end) {
    std::array<float, kTableColumns> room;
    for (; row < end; ++row) sum_tokens(chains, row, width, dy, room.data(), table + row * width);
  });
}

int64_t list_scratch(const TypeArgs& args, int) {
  const int64_t tokens = args.in[0].elements();
  return Chains::bytes(args.out[1].shape[0], tokens) + tokens * static_cast<int64_t>(sizeof(int32_t));
}

// The chains of the rows that are looked up, in the order of their numbers, which are written.
Chains listed_chains(const KernelArgs& args, const Indices& ids) {
  const int64_t vocabulary = args.attrs.as<EmbeddingGradRowsAttrs>().vocabulary;
  for (int64_t token = 0; token < ids.size(); ++token) checked_id("embedding_grad_rows", ids, token, vocabulary);
  const std::span<int64_t> numbers = args.out[0].as<int64_t>();
  std::ranges::fill(numbers, -1);
  Chains chains(args.scratch, std::ssize(numbers));
  int32_t* const order = chains.next + ids.size();
  std::iota(order, order + ids.size(), 0);
  std::sort(order, order + ids.size(),
            [&](int32_t a, int32_t b) { return std::pair(ids[a], a) < std::pair(ids[b], b); });
  int64_t row = -1;
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (i > 0 && ids[order[i]] == ids[order[i - 1]]) {
      chains.next[order[i - 1]] = order[i];
    } else {
      numbers[static_cast<size_t>(++row)] = ids[order[i]];
      chains.first[row] = order[i];
    }
    chains.next[order[i]] = -1;
  }
  return chains;
}

template <class T>
void embedding_grad_rows(const KernelArgs& args) {
  const int64_t width = args.out[1].type.shape[1];
  const T* dy = data_of<T>(args.in[1]);
  T* rows = data_of<T>(args.out[1]);
  const Chains chains = listed_chains(args, Indices(args.in[0]));
  for_range(args, args.out[1].type.shape[0], rows_per_task(width), [&](int64_t row, int64_t end) {
    std::array<float, kTableColumns> room;
    for (; row < end; ++row) sum_tokens(chains, row, width, dy, room.data(), rows + row * width);
  });
}

void embedding_grad_rows_in_leaves(const KernelArgs& args) {
  const int64_t width = args.out[1].type.shape[1];
  const float* dy = args.in[1].as<float>().data();
  float* rows = args.out[1].as<float>().data();
  const Chains chains = listed_chains(args, Indices(args.in[0]));
  const LeafRows tokens = leaf_rows(args, 0, args.in[0].type.shape.rank());
  for_range(args, args.out[1].type.shape[0], rows_per_task(width), [&](int64_t row, int64_t end) {
    LeafSums sums(tokens);
    for (; row < end; ++row) sums.sum(chains, row, width, dy, rows + row * width);
  });
}

}  // namespace

std::span<const Kernel> embedding_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "embedding",
          .name = "embedding.rows",
          .why_not = embedding_why_not,
          .run = by_storage<embedding<float>, embedding<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "embedding_grad",
          .name = "embedding_grad.rows",
          .why_not = embedding_grad_why_not,
          .scratch = embedding_grad_scratch,
          .run = by_storage<embedding_grad<float>, embedding_grad<Bf16>, 1>,
          .bits = Bits::kShape,
      },
      {
          .op = "embedding_grad",
          .name = "embedding_grad.leaves",
          .why_not = not_f32_gradients,
          .scratch = embedding_grad_scratch,
          .run = embedding_grad_in_leaves,
          .bits = Bits::kLeaves,
      },
      {
          .op = "embedding_grad_rows",
          .name = "embedding_grad_rows.rows",
          .why_not = embedding_grad_why_not,
          .scratch = list_scratch,
          .run = by_storage<embedding_grad_rows<float>, embedding_grad_rows<Bf16>, 1>,
          .bits = Bits::kShape,
      },
      {
          .op = "embedding_grad_rows",
          .name = "embedding_grad_rows.leaves",
          .why_not = not_f32_gradients,
          .scratch = list_scratch,
          .run = embedding_grad_rows_in_leaves,
          .bits = Bits::kLeaves,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu

// embedding and embedding_grad in f32.
#include <algorithm>
#include <cstring>

#include "trireme/backend/cpu/index.h"
#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/parallel.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

int64_t checked(const char* op, const Indices& ids, int64_t token, int64_t vocabulary) {
  const int64_t id = ids[token];
  require(id >= 0 && id < vocabulary, "{}: id {} at position {} of a vocabulary of {}; use 0 to {}",
          op, id, token, vocabulary, vocabulary - 1);
  return id;
}

std::string embedding_why_not(const TypeArgs& args) {
  std::string reason = operand_not_f32(args, 0);
  return reason.empty() ? operand_not_index(args, 1) : reason;
}

std::string embedding_grad_why_not(const TypeArgs& args) {
  std::string reason = operand_not_index(args, 0);
  return reason.empty() ? operand_not_f32(args, 1) : reason;
}

void run_embedding(const KernelArgs& args) {
  const Indices ids(args.in[1]);
  const int64_t rows = args.in[0].type.shape[0];
  const int64_t width = args.in[0].type.shape[1];
  const int64_t start = args.in_start(0, 0);
  const int64_t vocabulary = args.in_whole(0)[0];
  const float* table = args.in[0].as<float>().data();
  float* y = args.out[0].as<float>().data();
  for_range(args, ids.size(), rows_per_task(width), [&](int64_t token, int64_t end) {
    for (; token < end; ++token) {
      const int64_t row = checked("embedding", ids, token, vocabulary) - start;
      float* to = y + token * width;
      if (row >= 0 && row < rows) {
        std::copy_n(table + row * width, width, to);
      } else {
        std::fill_n(to, width, 0.0F);
      }
    }
  });
}

// Tokens are added in their order; threads share the columns, so no order depends on them.
void run_embedding_grad(const KernelArgs& args) {
  constexpr int64_t kColumns = 128;
  const Indices ids(args.in[0]);
  const int64_t rows = args.out[0].type.shape[0];
  const int64_t width = args.out[0].type.shape[1];
  const int64_t start = args.out_start(0, 0);
  const int64_t vocabulary = args.attrs.as<EmbeddingGradAttrs>().vocabulary;
  const float* dy = args.in[1].as<float>().data();
  float* table = args.out[0].as<float>().data();
  for_range(args, rows * width, kGrain,
            [&](int64_t begin, int64_t end) { std::fill(table + begin, table + end, 0.0F); });
  for_range(args, width, kColumns, [&](int64_t column, int64_t end) {
    for (int64_t token = 0; token < ids.size(); ++token) {
      const int64_t row = checked("embedding_grad", ids, token, vocabulary) - start;
      if (row < 0 || row >= rows) continue;
      loops().accumulate(end - column, dy + token * width + column, table + row * width + column);
    }
  });
}

}  // namespace

extern const Kernel embedding_rows{"embedding", "embedding.rows", embedding_why_not, nullptr,
                                   run_embedding};
extern const Kernel embedding_grad_rows{"embedding_grad", "embedding_grad.rows",
                                        embedding_grad_why_not, nullptr, run_embedding_grad};

}  // namespace trireme::cpu

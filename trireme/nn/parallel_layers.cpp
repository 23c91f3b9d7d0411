#include "trireme/nn/parallel_layers.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::nn {
namespace {

// A layout of `rank` dimensions with the first cut over `first` and the last over `last`.
std::string layout(int rank, const std::string& first, const std::string& last) {
  std::string out = "[";
  for (int dim = 0; dim < rank; ++dim) {
    out += fmt::format("{}{}", dim > 0 ? ", " : "", dim + 1 == rank ? last : dim == 0 ? first : "-");
  }
  return out + "]";
}

void request(const std::string& cuts) {
  Graph& graph = Trace::current().graph();
  graph.add_shard_request({std::string(graph.scope()), cuts});
}

}  // namespace

ColumnLinear::ColumnLinear(int64_t in, int64_t out, LinearOptions options, ParallelAxes axes)
    : Linear(in, out, options), in_out_(options.in_out), axes_(std::move(axes)) {}

Tensor ColumnLinear::forward(const Tensor& x) {
  require(x.rank() >= 2, "ColumnLinear got {}; it needs a batch dimension before the last", to_string(x.type()));
  request(layout(x.rank(), axes_.batch, "-") + ", " +
          (in_out_ ? fmt::format("[-, {}]", axes_.weight) : fmt::format("[{}, -]", axes_.weight)));
  return Linear::forward(x);
}

RowLinear::RowLinear(int64_t in, int64_t out, LinearOptions options, ParallelAxes axes, RowOptions row)
    : Linear(in, out, options), in_out_(options.in_out), axes_(std::move(axes)), row_(row) {}

Tensor RowLinear::forward(const Tensor& x) {
  require(x.rank() >= 2, "RowLinear got {}; it needs a batch dimension before the last", to_string(x.type()));
  require(!row_.scatter || x.rank() == 3,
          "RowLinear got {}; to scatter along positions it must be [batch, positions, in]", to_string(x.type()));
  std::string cuts = layout(x.rank(), axes_.batch, axes_.weight) + ", " +
                     (in_out_ ? fmt::format("[{}, -]", axes_.weight) : fmt::format("[-, {}]", axes_.weight));
  cuts += row_.scatter ? fmt::format(" -> [{}, {}, -]", axes_.batch, axes_.weight)
                       : " -> " + layout(x.rank(), axes_.batch, "-");
  request(cuts);
  return Linear::forward(x);
}

VocabularyEmbedding::VocabularyEmbedding(int64_t vocabulary, int64_t width, EmbeddingOptions options, ParallelAxes axes)
    : Embedding(vocabulary, width, std::move(options)), axes_(std::move(axes)) {}

Tensor VocabularyEmbedding::forward(const Tensor& ids) {
  require(ids.rank() >= 1, "VocabularyEmbedding got a single id {}; it needs a batch of them", to_string(ids.type()));
  const std::string batch = ids.rank() == 1 ? fmt::format("[{}]", axes_.batch) : layout(ids.rank(), axes_.batch, "-");
  request(fmt::format("[{}, -], {} -> {}", axes_.weight, batch, layout(ids.rank() + 1, axes_.batch, "-")));
  return Embedding::forward(ids);
}

namespace {

int64_t longest(const std::vector<int64_t>& rows) {
  require(!rows.empty(), "SplitEmbedding of no parts; name the rows of 1 or more");
  for (size_t k = 0; k < rows.size(); ++k) {
    require(rows[k] >= 1, "SplitEmbedding: part {} has {} rows; each must have 1 or more", k, rows[k]);
  }
  return *std::max_element(rows.begin(), rows.end());
}

}  // namespace

SplitEmbedding::SplitEmbedding(std::vector<int64_t> rows, int64_t width, EmbeddingOptions options, ParallelAxes axes)
    : VocabularyEmbedding(longest(rows) * static_cast<int64_t>(rows.size()), width, std::move(options),
                          std::move(axes)),
      rows_(std::move(rows)) {}

Tensor SplitEmbedding::forward(const Tensor& ids) {
  // Behind each part the tokens move on by what it is shorter than the longest.
  Graph& graph = Trace::current().graph();
  const std::string scope(graph.scope());
  graph.set_scope(scope + ".rows");
  Tensor at = ids;
  int64_t start = 0;
  for (size_t k = 0; k + 1 < rows_.size(); ++k) {
    start += rows_[k];
    const int64_t gap = longest(rows_) - rows_[k];
    if (gap == 0) continue;
    const Tensor behind = logical_not(less(ids, full(graph, {ids.dtype(), {}}, static_cast<double>(start))));
    at = add(at, scale(cast(behind, ids.dtype()), static_cast<double>(gap)));
  }
  graph.set_scope(scope);
  return VocabularyEmbedding::forward(at);
}

}  // namespace trireme::nn

#include "trireme/nn/parallel.h"

#include "trireme/base/error.h"

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
  require(!row_.scatter || x.rank() == 3, "RowLinear got {}; to scatter along positions it must be [batch, positions, in]",
          to_string(x.type()));
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

}  // namespace trireme::nn

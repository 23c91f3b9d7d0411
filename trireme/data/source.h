// Source: numbered samples, each of the same fields. Reading a sample is a pure function of its
// number, so any rank may read any part, from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/tensor/field.h"
#include "trireme/tensor/view.h"

namespace trireme::data {

using trireme::FieldSpec;

// A part of one field of a sample: its first element, and where it goes, in the part's shape. Without
// data it is not wanted.
struct FieldPart {
  Shape start;
  View to;
};

class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  virtual std::vector<FieldSpec> fields() const = 0;
  virtual int64_t size() const = 0;  // samples
  // Writes sample `sample` into one view per field, each of the field's type; a view whose data is
  // null is not wanted. Safe from several threads at once.
  virtual void read(int64_t sample, std::span<const View> out) const = 0;
  // The same for a part of each field. Sources that can read nothing else; others read the whole
  // sample.
  virtual void read_parts(int64_t sample, std::span<const FieldPart> parts) const;
  // How many of the following samples share data with a sample; not 0 for windows of one text.
  virtual int64_t overlap() const { return 0; }
};

// Calls fn(first element in the field, first in the part, elements) for each run of a part of it.
template <class Fn>
void each_run(const Shape& field, const FieldPart& part, Fn&& fn) {
  const Shape& size = part.to.type.shape;
  const auto strides = field.strides();
  int outer = field.rank();  // dimensions that are not in a run
  int64_t run = 1;
  int64_t first = 0;
  while (outer > 0) {
    --outer;
    run *= size[outer];
    first += part.start[outer] * strides[static_cast<size_t>(outer)];
    if (size[outer] != field[outer]) break;
  }
  const int64_t runs = run == 0 ? 0 : size.elements() / run;
  for (int64_t i = 0; i < runs; ++i) {
    int64_t rest = i;
    int64_t from = first;
    for (int dim = outer - 1; dim >= 0; --dim) {
      from += (part.start[dim] + rest % size[dim]) * strides[static_cast<size_t>(dim)];
      rest /= size[dim];
    }
    fn(from, i * run, run);
  }
}

using SourcePtr = std::shared_ptr<const Source>;

struct Split {
  SourcePtr train;
  SourcePtr validation;
};

// Two disjoint parts; `validation_samples` go to validation. Where samples do not overlap they are
// dealt out at random by `seed`, the same way on every rank. Where they do (windows of a text),
// validation is the ends of `blocks` equal parts of the source, and the windows on the borders that
// would share data with it are in neither part.
Split split(const SourcePtr& source, int64_t validation_samples, uint64_t seed = 0, int64_t blocks = 1);
// The same by share: 0.1 holds out a tenth, rounded to the nearest count.
Split split_fraction(const SourcePtr& source, double validation_fraction, uint64_t seed = 0, int64_t blocks = 1);

// Samples first, first + 1, ... of a source.
SourcePtr slice(SourcePtr source, int64_t first, int64_t count);

struct TextOptions {
  int64_t seq = 0;                           // tokens a sample feeds to the model
  int64_t stride = 0;                        // tokens between the starts of neighbouring samples; 0 = seq
  std::vector<std::string> extensions = {};  // e.g. {".txt", ".md"}, for files found in folders; none = all
  char separator = '\n';                     // between two files
};

// Bytes of text files as tokens 0..255: fields "tokens" i32[seq] and "targets" i32[seq], the same
// window one byte later; sample i starts at byte i * stride. Each path is a file or a folder.
// Folders are walked recursively in order of path; hidden files, files of other extensions and
// files with a zero byte in their first 8192 are passed over there, while a file named outright is
// taken as it is.
SourcePtr text(const std::vector<std::string>& paths, const TextOptions& options);

// Which tokens are to be told, as BERT does: each with the probability `share`, and one of every sample at least. Of
// ten of them eight are shown as token 256, one as another, one as it is. A function of seed, sample and position
// alone.
struct MaskOptions {
  double share = 0.15;
  uint64_t seed = 0;
};
// The text's tokens so, and as targets what is to be told, -100 elsewhere.
SourcePtr masked_text(SourcePtr text, const MaskOptions& options);

// Of a sample's tokens, round(seq * share) in round(that / mean_span) spans are missing. A function of seed and sample
// alone.
struct SpanOptions {
  double share = 0.15;
  double mean_span = 3;
  uint64_t seed = 0;
};
// The text so: "tokens", each span replaced by a token of its own (258 and up) and 257 at the end; "targets", those
// tokens, each followed by the span it stands for, and 257; "decoder_tokens", 256 and the targets but for the last.
SourcePtr corrupted_text(SourcePtr text, const SpanOptions& options);

struct ImageOptions {
  float mean = 0.0F;  // a pixel becomes (byte / 255 - mean) / std
  float std = 1.0F;
  int64_t classes = 256;  // labels are 0 to classes - 1
};

// Images and labels in IDX files, plain or gzip: fields "image" f32[height,width,1] and "label"
// i32[].
SourcePtr idx(const std::string& images, const std::string& labels, const ImageOptions& options = {});

struct SyntheticTokens {
  int64_t samples = 0;
  int64_t seq = 0;
  int64_t vocabulary = 256;
  uint64_t seed = 0;
};

// A text that can be learnt: three times in four the next token is (5 * token + 3) mod vocabulary,
// else it is drawn evenly. Fields as of text().
SourcePtr synthetic_tokens(const SyntheticTokens& options);

struct SyntheticImages {
  int64_t samples = 0;
  Shape image = {28, 28, 1};
  int64_t classes = 10;
  uint64_t seed = 0;
};

// Each class has a pattern of normal values; a sample is its class's pattern plus normal noise of
// the same size. Fields as of idx(), with the shape given.
SourcePtr synthetic_images(const SyntheticImages& options);

struct SyntheticFields {
  int64_t samples = 0;
  std::vector<FieldNeed> fields = {};  // without sizes of 0
  uint64_t seed = 0;
};

// Any fields, of which the last can be learnt from the others if it is a class: each class has a pattern of normal
// values and of ids; a sample's numbers are its class's with noise of the same size over them, and three in four of its
// ids are its class's.
SourcePtr synthetic_fields(const SyntheticFields& options);

// Columns of a table that make one field.
struct CsvField {
  std::string name;
  std::vector<std::string> columns = {};  // none = all that no other field has, in their order
  DType dtype = DType::kF32;              // or i32, for classes and ids
  bool scalar = false;                    // of one column: [] and not [1]
  int64_t below = 0;                      // i32 are from 0 to below this; 0: any
};

struct CsvOptions {
  std::vector<CsvField> fields;
  char delimiter = ',';
};

// A table of numbers with a header line: each line is a sample, with the fields that are asked for.
SourcePtr csv(const std::string& path, const CsvOptions& options);

struct TextPairsOptions {
  int64_t seq = 0;                                                         // tokens in a sample
  std::string first = "sentence1", second = "sentence2", label = "label";  // columns
  std::vector<std::string> labels = {};                                    // the classes' names; none: whole numbers
  int64_t classes = 0;                                                     // labels are below; 0: any
  char delimiter = ',';
};

// A table of two texts and a class in each row, with a header line. A sample is 256, the first text's bytes, 257, the
// second's, 257, and 258 up to `seq`; where both do not fit, the longer one loses its end. Fields "tokens", "segments"
// (1 in the second text and at its end) and "mask" (0 where nothing is), i32[seq], and "label" i32[].
SourcePtr text_pairs(const std::string& path, const TextPairsOptions& options);

// Text as byte tokens: the identity, vocabulary 256.
inline constexpr int64_t kByteVocabulary = 256;
std::vector<int32_t> encode(std::string_view text);
std::string decode(std::span<const int32_t> tokens);

}  // namespace trireme::data

#include "trireme/parallel/asked/asked.h"

#include <algorithm>
#include <array>
#include <optional>

#include "trireme/base/error.h"

namespace trireme {
namespace {

struct AttributeName {
  std::string_view words;
  OpAttribute::Kind kind;
};
constexpr std::array kAttributes{AttributeName{"cross_batch", OpAttribute::Kind::kCrossBatch},
                                 AttributeName{"cross_batch mean", OpAttribute::Kind::kCrossBatchMean},
                                 AttributeName{"skip_redistribution", OpAttribute::Kind::kSkipRedistribution},
                                 AttributeName{"self_define_shard", OpAttribute::Kind::kSelfDefineShard}};

OpAttribute::Kind kind_of(std::string_view words, std::string_view text) {
  const auto* const found = std::ranges::find(kAttributes, words, &AttributeName::words);
  if (found != kAttributes.end()) return found->kind;
  std::vector<std::string> names;
  for (const AttributeName& each : kAttributes) names.emplace_back(each.words);
  fail(ErrorKind::kInvalidArgument, "'{}' is neither cuts, like {{{{2, 1}}, {{1, 2}}}} or [dp, -], nor one of {}.{}",
       text, quoted_list(names), suggestion(std::string(words), names));
}

OpAttribute attribute_of(std::string_view text) {
  const size_t arrow = text.find("->");
  const size_t layouts = std::min({text.find('['), arrow, text.size()});
  OpAttribute out{kind_of(trim(text.substr(0, layouts)), text), {}, {}};
  const bool defines = out.kind == OpAttribute::Kind::kSelfDefineShard;
  require(!defines || arrow != std::string_view::npos,
          "'{}' has no '->'; give the layouts of operands and results, like self_define_shard [dp, -] -> [-, dp]",
          text);
  const std::string_view operands = text.substr(layouts, std::min(arrow, text.size()) - layouts);
  require(defines || trim(operands).empty(), "'{}': no layouts of operands stand after {}; leave '{}' out", text,
          trim(text.substr(0, layouts)), trim(operands));
  if (defines) out.operands = parse_named_layouts(operands);
  if (arrow == std::string_view::npos) return out;
  require(defines || out.kind == OpAttribute::Kind::kSkipRedistribution,
          "'{}': no layouts of results stand after {}; leave '{}' out", text, trim(text.substr(0, layouts)),
          text.substr(arrow));
  out.results = parse_named_layouts(text.substr(arrow + 2));
  return out;
}

bool is_cuts(std::string_view text) {
  return text.empty() || text.front() == '[' || text.front() == '{' || text.starts_with("->");
}

}  // namespace

OpRequest OpRequest::read(std::string_view text) {
  text = trim(text);
  require(!text.starts_with("manual_split"),
          "'{}': sizes of parts are given; cuts make parts of one size, of which the last may be shorter. Let the "
          "model's table be an nn::SplitEmbedding of these parts, or cut it like [tp, -], [dp]",
          text);
  OpRequest out;
  out.text = text;
  if (is_cuts(text)) {
    out.what = Cuts(text);
  } else {
    out.what = attribute_of(text);
  }
  return out;
}

DatasetStrategy DatasetStrategy::read(std::string_view text) {
  DatasetStrategy out;
  out.text = trim(text);
  if (out.text == "data_parallel") return out;
  if (out.text == "full_batch") {
    out.how = Named::kFullBatch;
  } else if (out.text.starts_with('{')) {
    out.how = parse_parts(out.text);
  } else {
    require(out.text.starts_with('['),
            "dataset strategy '{}'; it must be data_parallel, full_batch, a layout like [dp, sp] or numbers like "
            "{{{{4, 1}}, {{4}}}}",
            text);
    out.how = NamedLayout(out.text);
  }
  return out;
}

}  // namespace trireme

// What a language model's code calls where the place of a token counts. Of whole sequences these are the ops alone;
// where the tokens are the next ones of a sequence (TraceOptions::kept_tokens) they count from the trace's position on,
// and see those before by the keys and values that attention keeps in buffers. So the same code makes both graphs. A
// model may be asked for the next tokens alone where a token's prediction depends on others in no other way
// (ModelSpec::can_decode).
#pragma once

#include "trireme/nn/module.h"

namespace trireme::nn {

// Of tokens[b,s], in their sequence: i32[s].
Tensor positions(const Tensor& tokens);
// Rotary position embedding of x[b,s,h,d].
Tensor turned_by_position(const Tensor& x, double theta);
// Of queries [b,s,h,d] to keys and values [b,s,g,d], and to those of the tokens before.
Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v);

}  // namespace trireme::nn

// Functions that a language model's code calls where a token's position matters. For whole sequences they are the plain
// ops. If the tokens are the next ones of a sequence (TraceOptions::kept_tokens), they count from the trace's position
// on, and attention reads the keys and values of earlier tokens from its buffers. So the same code makes both graphs. A
// model may be asked for the next tokens alone if nothing else connects a token's prediction with other tokens
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

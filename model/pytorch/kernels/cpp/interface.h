// What the kernels take and give: plain C, so that any language can call them.
//
// Dimension letters as everywhere: B sequences, T packed tokens, N tokens of one sequence, H heads, D head size,
// C = H·D. All arrays belong to the caller.
#pragma once

#include <cstdint>

#define HEADLIGHT_EXPORTED __attribute__((visibility("default")))

extern "C" {

// What is recorded of one sequence's attention beside its outputs. Slots say where a head or a query goes, and -1
// that it is not wanted; they lie below the counts beside them.
struct Observation {
    // Statistics, float32 (statistic_heads, 10), means over the rows: entropy in nats, largest weight, distance in
    // tokens, weight on the token itself, the one before, the one after, and on special tokens; and the share of rows
    // whose largest weight, of equal ones the first, is on the token itself, the one before, the one after; null: none.
    float *statistics;
    const int32_t *statistic_slots;  // (H,)
    const float *special;            // (N,): 1 where a token is special, else 0
    // Softmax weights, (map_heads, map_rows, N); null: none.
    void *maps;
    const int32_t *head_slots;  // (H,)
    const int32_t *row_slots;   // (N,); null: all queries, in order
    uint8_t *finite;           // becomes 0 when a row of `maps` is not; null: not recorded
    int64_t statistic_heads, map_heads, map_rows;
    int32_t half;  // whether maps are float16, else float32
};

// Queries, keys and values, (T, H, D) each, the components of a head side by side.
struct Attention {
    const void *q, *k, *v;
    int64_t token_stride;   // from one token to the next in q, k and v, in elements
    void *output;           // (T, H, D), dense; null: only what is observed is computed
    const int64_t *starts;  // (B + 1,): where each sequence begins, from 0 to at most T
    int64_t tokens, sequences, heads, head_size;
    float scale;  // of the scores: 1/√D
    const Observation *observations;  // (B,); null: nothing is observed
};

// The sum of a residual stream and what is added to it, and the layer norm of that (Ba et al. 2016).
struct Norm {
    const float *x;     // (T, C), dense
    const void *added;  // (T, C), dense, in the precision of the call
    const float *gain, *bias;  // (C,)
    float *output;      // (T, C): may be `x` itself
    void *rounded;      // (T, C) in the precision of the call; null: not wanted
    int64_t tokens, size;
    float epsilon;
};

// A tensor of PyTorch, and what is done with one here: functions of the C interface that PyTorch keeps stable for models
// that were compiled ahead of time (torch/csrc/inductor/aoti_torch/c). They return 0 when they succeed.
using Tensor = struct AtenTensorOpaque *;
struct Torch {
    // activation(x Wᵀ + b), (T, in) to (T, out): aoti_torch_cpu__linear_pointwise.
    int32_t (*linear)(Tensor x, Tensor weight, Tensor *bias, const char *activation, const double **scalars,
                      int64_t scalar_count, const char **algorithm, Tensor *result);
    int32_t (*get_data)(Tensor, void **data);
    int32_t (*release)(Tensor);
};

struct Linear {
    Tensor weight, bias;
    const char *activation, *algorithm;  // "none", "" for none
};

struct Layer {
    Linear qkv, output, inner, outer;
    const float *attention_gain, *attention_bias;        // (C,)
    const float *feed_forward_gain, *feed_forward_bias;  // (C,)
};

// Some layers of an encoder with norms after each part, one after the other.
struct Layers {
    const Torch *torch;
    int (*attend)(const Attention *);
    int (*add_norm)(const Norm *);
    const Layer *layers;
    int64_t count;
    int64_t tokens, size, element;  // T, C, and the bytes of a number in the precision of the products
    float epsilon;                  // of the norms
    const float *x;                 // (T, C): the hidden state before the first of them
    Tensor rounded, mixed;          // (T, C) in the precision of the products: x, and room, zero beyond the last sequence
    float *stream;                  // (T, C): room; may be `x`
    float *const *states;           // (count,): where the state after a layer goes, (T, C) or null: `stream`
    void *const *projections;       // (count,): where queries, keys and values of a layer go, (T, 3·C) or null
    const Observation *const *observations;  // (count,): what is observed of a layer, (B,) or null
    const Attention *attention;     // the sequences and heads
    int32_t ends_observing;         // whether of the last layer nothing but its attention is observed
};

// What the functions return.
enum Outcome { DONE = 0, NO_MEMORY = -1, BAD_ARGUMENT = -2 };

HEADLIGHT_EXPORTED int headlight_attend_float32(const Attention *);
HEADLIGHT_EXPORTED int headlight_attend_bfloat16(const Attention *);      // with AVX512-BF16
HEADLIGHT_EXPORTED int headlight_attend_bfloat16_amx(const Attention *);  // with AMX, once `headlight_enable_amx` has returned 1
HEADLIGHT_EXPORTED int headlight_add_norm_float32(const Norm *);
HEADLIGHT_EXPORTED int headlight_add_norm_bfloat16(const Norm *);
HEADLIGHT_EXPORTED int headlight_run_layers(const Layers *);
HEADLIGHT_EXPORTED extern const uint32_t headlight_sources;  // a checksum of what this was compiled from
HEADLIGHT_EXPORTED extern const int64_t headlight_sizes[7];  // of the structures above, in bytes
HEADLIGHT_EXPORTED int headlight_enable_amx(void);  // asks the kernel for tiles, for the process: 1 when it may use them
}  // extern "C"

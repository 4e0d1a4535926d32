// The interface of the kernels, in plain C, so that any language can call them.
//
// Dimension letters as in model/contract.py: B sequences, T packed tokens, N tokens of one sequence, H heads, D head
// size, C = H·D. The caller owns all arrays.
#pragma once

#include <cstdint>

#define HEADLIGHT_EXPORTED __attribute__((visibility("default")))

extern "C" {

// How far a pass is. Other threads read the counts and set `stopping` while it runs; all of them atomically.
struct Progress {
    int64_t steps;     // grows after each step of a layer, and within long ones
    int64_t layers;    // grows after each layer
    int64_t stopping;  // not 0: the pass ends after the step that it is at
};

// What to record of one sequence's attention besides its outputs. A slot is the index at which a head or a query is
// stored, less than the count for its array; -1 means that it is not selected.
struct Observation {
    float *statistics;  // (statistic_heads, STATISTICS), means over the rows: `Statistic` of statistics.h; null: none
    const int32_t *statistic_slots;  // (H,)
    const float *special;            // (N,): 1 for a special token, else 0
    // Softmax weights, (map_heads, map_rows, N); null: none.
    void *maps;
    const int32_t *head_slots;  // (H,)
    const int32_t *row_slots;   // (N,); null: all queries, in order
    uint8_t *finite;           // set to 0 if a row of `maps` is not finite; null: not recorded
    int64_t statistic_heads, map_heads, map_rows;
    int32_t half;  // 1: maps are float16; 0: float32
    // The largest softmax weight of each cell, (thumbnail_heads, row_cells, column_cells), raised from −∞; null: none.
    float *thumbnails;
    const int32_t *thumbnail_slots;  // (H,)
    const int32_t *cell_of_row;      // (N,): the cell of a query; -1: it is in none
    const int32_t *columns;          // (spans, 3): a cell, and the first key in it and the first one after these
    int64_t spans, thumbnail_heads, row_cells, column_cells;
    // (H,): `maps`, float32 (map_rows, N) and 0 beforehand, is the sum over heads of their weights times these; null: each
    // head has its own. No outputs are computed then, nor anything else of sequences without them.
    const float *shares;
};

// What queries and keys are also compared with (disentangled attention, He et al. 2021): vectors of distances.
struct Distances {
    const void *keys, *queries;  // (H, …): `number` vectors (D,) in panels, as `Product` has them, on a cache line's
                                 // boundary; either may be null
    const int32_t *rows;         // (2·length − 1,): the vector of each distance, those of keys d positions after their
                                 // query in column length − 1 + d; from one distance to the next it never increases
    int64_t number, length;      // `length` is at least the longest sequence
};

// What is changed in one sequence's attention.
struct Intervention {
    // Sets of blocked edges, of which words of 32 bits have a bit each: a key is hidden from a query if a word of the
    // head, of the query and of the key share a bit. So the price of a row is the same for 1 and for 32 sets.
    const uint32_t *heads, *queries, *keys;  // (H, words), (N, words) and (words, N); null: none is blocked
    int64_t words, length;                   // `length` is N
    const float *scales;   // (H,): what the outputs of a head are multiplied by; null: none is changed
    const uint8_t *means;  // (H,): 1: before that, each is replaced by their mean over the tokens; null as `scales` is
};

// The tokens of another sequence with which one begins: the keys and values of these rows come before its own.
struct Prefix {
    int64_t first, length;  // rows; a length of 0: it begins with its own
};

// Queries (T, H, D), and keys and values (T, kv_heads, D), with the components of a head contiguous.
struct Attention {
    const void *q, *k, *v;
    int64_t token_stride;   // from one token to the next in q, k and v, in elements
    void *output;           // (T, H, D), dense; null: compute only the observations
    const int64_t *starts;  // (B + 1,): where each sequence begins, from 0 to at most T
    int64_t tokens, sequences, heads, head_size;
    float scale;  // of the scores, such as 1/√D
    const Observation *observations;  // (B,); null: observe nothing
    int64_t kv_heads;       // each key serves H / kv_heads queries; 0: one key for each
    const float *bias;      // (H, 2·bias_length − 1), divided by `scale`: added to the scores by distance, those of keys d
                            // positions after their query in column bias_length − 1 + d; null: none
    int64_t bias_length;    // at least the longest sequence
    int64_t window;         // keys further away are hidden; 0: none
    int32_t causal;         // 1: keys after their query are hidden
    const Distances *distances;  // null: none; not with AMX
    const int64_t *unattended;   // (B,): how many last keys of each sequence are hidden, not all; null: none
    int64_t *steps;         // of `Progress`; null: not counted
    const Intervention *interventions;  // (B,); null: nothing is changed
    const Prefix *prefixes;  // (B,); null: none. Only if causal, not with distances, `unattended` or interventions, nor of a
                             // sequence that is empty or observed
};

// Adds a sublayer's output to the residual stream, and applies a norm: layer (Ba et al. 2016) or RMS (Zhang & Sennrich
// 2019).
struct Norm {
    const float *x;     // (T, C), dense
    const void *added;  // (T, C), dense, in the precision of the call; null: nothing
    const float *gain, *bias;  // (C,); a bias may be null
    float *output;      // (T, C), normalised: may be `x` itself; null: not needed
    void *rounded;      // (T, C), in the precision of the call: `output`, or `sum` without one; null: not needed
    int64_t tokens, size;
    float epsilon;
    float *sum;         // (T, C), before the norm: may be `x` itself, but not `output`; null: not needed
    int32_t rms;        // 1: RMS norm
    const float *added_gain, *added_bias;  // (C,), of a norm of what is added; null: none, or none with a bias
};

// Turns queries and keys by their positions (Su et al. 2021), in place; before that, it may apply an RMS norm to each.
struct Rotation {
    void *x;                   // in the precision of the call, (T, heads, D): a row of all heads starts `stride` numbers
                               // after the one before
    const float *cos, *sin;    // (T, pairs)
    int64_t tokens, stride, heads, head_size, pairs;
    int32_t interleaved;       // 1: components 2i and 2i + 1 are a pair; 0: i and i + pairs
    const float *query_gain, *key_gain;  // (D,), of the norms of the first `queries` heads and of the others; null: none
    int64_t queries;
    float epsilon;
};

// Multiplies the activation of a gate by a value (Shazeer 2020), in the precision of the call.
struct Gate {
    const void *x;  // (T, 2·size): a gate and a value
    void *output;   // (T, size)
    int64_t tokens, size;
    int32_t activation;
};

// Chooses the experts of each token (Shazeer et al. 2017): the softmax of a router's logits, of which the largest stay.
struct Routing {
    const void *logits;  // (T, experts), in the precision of the call
    float *shares;       // (T, experts): 0 for experts that are not chosen
    int64_t tokens, experts, chosen;
};

// Adds the results of one expert to the sums of those tokens that it computed.
struct Collection {
    const void *results;  // (count, C), in the precision of the call
    const int64_t *rows;  // (count,): the tokens, each once
    const float *shares;  // of the expert: that of a token is `experts` numbers after that of the token before
    float *sums;          // (T, C)
    int64_t count, size, experts;
};

// Adds up the embeddings of tokens, and normalises the sum.
struct Embedding {
    const int64_t *tokens, *segments;  // (T,): rows of the tables
    const int64_t *starts;             // (B + 1,): where each sequence begins; rows after the last are padding
    const float *token_table, *position_table, *segment_table;  // (count, C); the last two may be null
    int64_t token_count, position_count, segment_count;
    const float *gain, *bias;  // (C,), of the norm; the bias may be null
    float *output;             // (T, C)
    int64_t rows, sequences, size;
    float epsilon;
};

enum Activation { NONE = 0, RELU = 1, GELU = 2, GELU_TANH = 3, SILU = 4 };

// Some consecutive rows of a weight W (out, in), dense, as a file holds them.
enum StoredType { FLOAT32 = 0, FLOAT16 = 1, BFLOAT16 = 2 };
struct StoredRows {
    const void *first;  // (count, in)
    int64_t count;
    int32_t type;
};

// A linear layer, activation(x Wᵀ + b). With a gate (Shazeer 2020) the first half of the columns is activated and
// multiplied by the second.
struct Linear {
    const void *panels;  // words (panels, in, columns), on a cache line's boundary: Wᵀ, some columns after the others; the
                         // last panel is filled up with zeros. In bfloat16 (panels, in / 2, columns, 2): words of pairs.
                         // With a gate, each panel of the first half comes before the same one of the second.
                         // Bfloat16 for products in float32: 16-bit numbers (panels, in, columns), with columns as in
                         // linear/widened.cpp
    const float *bias;   // (out,)
    int64_t inputs, outputs;
    int32_t activation;
    // Of weights in eight bits, else null: (groups, out), by which the sums of each group of inputs are multiplied, and
    // (in,), by which x is. With n steps on either side of 0, each number in `panels` is then unsigned, n + 1 more than the
    // weight: (panels, in / 4, columns, 4).
    const float *scales, *smoothing;
    const void *low_panels;  // like `panels`, for precise products: what rounding left over, in parts of 2n; null: none
    int32_t precise;         // 1: its products are precise
    int32_t gated;           // 1: with a gate
    const StoredRows *stored;  // (parts,): all rows of W, for products that read them instead of `panels`; null: none
    int64_t parts;
};

// A linear layer applied to some tokens, in the precision of the call.
struct Product {
    Linear linear;
    const void *x;  // (T, in), dense
    void *output;   // (T, out), dense; with a gate (T, out / 2)
    int64_t tokens;
    int64_t *steps;  // of `Progress`; null: not counted
};

// The feed-forward networks of a layer with a mixture of experts.
struct Experts {
    Linear router;
    const Linear *first, *second;  // (count,)
    const float *bias;             // (C,), of the sum
    int64_t count, chosen;
};

struct Layer {
    Linear qkv, output, inner, outer;  // the last two are not used with experts
    const float *attention_gain, *attention_bias;        // (C,); null: no norm, or none with a bias
    const float *feed_forward_gain, *feed_forward_bias;  // (C,)
    int64_t window;     // of `Attention`
    int32_t gated;      // 1: the inner layer computes a gate and a value; its product may multiply them
    int32_t activation; // of the gate
    const Experts *experts;  // null: one network
    const float *query_gain, *key_gain;  // (D,), of RMS norms of each query and key; null: none
    // (C,), of norms of what attention and the feed-forward network add, where norms come before them too; null: as above
    const float *attention_output_gain, *attention_output_bias;
    const float *feed_forward_output_gain, *feed_forward_output_bias;
};

// The angles of rotary positions, for the rows of one call.
struct Angles {
    const float *cos, *sin;  // (T, pairs)
    int64_t pairs;
    int32_t interleaved;
};

// Consecutive layers of an encoder.
struct Layers {
    int (*multiply)(const Product *);
    int (*attend)(const Attention *);
    int (*add_norm)(const Norm *);
    const Layer *layers;
    int64_t count;
    int64_t tokens, size, element;  // T, C, and the size in bytes of one number in the precision of the products
    float epsilon;                  // of the norms
    const float *x;                 // (T, C): the hidden state before the first layer
    // Buffers in the precision of the products. `rounded` (T, C) is a copy of x; it may be null in float32, where products
    // read x itself. `mixed` (T, H·D) is zero in padding rows. `gated` (T, gated_width) is for gates that products do
    // not multiply.
    void *rounded, *mixed, *gated;
    int64_t gated_width;
    void *wide, *narrow;            // the same for results of products: (T, widest) and (T, C)
    int64_t widest;                 // the most outputs that a product in between may have
    float *stream;                  // (T, C): a buffer; may be `x`
    float *const *states;           // (count,): buffer for the state after a layer, (T, C); null: `stream`
    void *const *projections;       // (count,): buffer for queries, keys and values of a layer; or null
    const Observation *const *observations;  // (count,): observations of a layer, (B,); or null
    const Attention *attention;     // the sequences and heads
    int32_t ends_observing;         // 1: the last layer only observes its attention
    int (*rotate)(const Rotation *);
    int (*gate)(const Gate *);
    int (*route)(const Routing *);
    int (*collect)(const Collection *);
    // Buffers for experts, else null: (T, C) in the precision of the products; (T, C); (T, experts); (T,).
    void *gathered;
    float *sums, *shares;
    int64_t *rows;
    const Angles *const *angles;    // (count,): rotary positions of a layer; or null
    const float *const *biases;     // (count,): `bias` of `Attention` of a layer; or null
    const Distances *const *distances;  // (count,): `distances` of `Attention` of a layer; or null
    float *normed;                  // (T, C): a buffer, where norms come before the sub-layers
    int32_t norms_input;            // 1: norms come before the sub-layers; 0: after them and the residual
    int32_t rms;                    // of `Norm`
    int32_t precise;                // 1: all products of eight-bit integers are precise
    Progress *progress;             // null: not watched
    const Intervention *const *interventions;  // (count,): what is changed in a layer, (B,), or null; null: nothing in any
    const int64_t *chosen;          // (chosen_count,), ascending: the only rows of the state after the last layer that are
    int64_t chosen_count;           // read, so that the others need not be computed; null: all. Not if that layer only observes
};

// The return values of the functions.
enum Outcome { DONE = 0, NO_MEMORY = -1, BAD_ARGUMENT = -2, STOPPED = -3 };

// The steps by precision and instructions, such as `float32_avx2`: those of KERNEL_SETS in instructions.py.
#define HEADLIGHT_STEPS(kernels)                                               \
    HEADLIGHT_EXPORTED int headlight_attend_##kernels(const Attention *);      \
    HEADLIGHT_EXPORTED int headlight_add_norm_##kernels(const Norm *);         \
    HEADLIGHT_EXPORTED int headlight_multiply_##kernels(const Product *);      \
    HEADLIGHT_EXPORTED int headlight_rotate_##kernels(const Rotation *);       \
    HEADLIGHT_EXPORTED int headlight_gate_##kernels(const Gate *);             \
    HEADLIGHT_EXPORTED int headlight_route_##kernels(const Routing *);         \
    HEADLIGHT_EXPORTED int headlight_collect_##kernels(const Collection *);    \
    HEADLIGHT_EXPORTED int headlight_embed_##kernels(const Embedding *);       \
    HEADLIGHT_EXPORTED extern const int64_t headlight_columns_##kernels; /* of a panel */
// Products with weights of eight bits, by precision and instructions: those of EIGHT_BITS in instructions.py. With weights
// that have no scales, they are products in the precision.
#define HEADLIGHT_INT8(kernels)                                                                          \
    HEADLIGHT_EXPORTED int headlight_int8_multiply_##kernels(const Product *);                           \
    HEADLIGHT_EXPORTED extern const int64_t headlight_int8_steps_##kernels;   /* on either side of 0 */  \
    HEADLIGHT_EXPORTED extern const int64_t headlight_int8_group_##kernels;   /* of inputs with a scale */ \
    HEADLIGHT_EXPORTED extern const int64_t headlight_int8_added_##kernels;   /* to weights */
// Products that read and write float32, with weights in bfloat16: those of KERNEL_SETS that widen weights.
#define HEADLIGHT_BFLOAT16_WEIGHTS(kernels)                               \
    HEADLIGHT_EXPORTED int headlight_multiply_##kernels(const Product *); \
    HEADLIGHT_EXPORTED extern const int64_t headlight_columns_##kernels;
// Products in float32 with weights as a file holds them.
HEADLIGHT_EXPORTED int headlight_stored_multiply_float32_avx2(const Product *);
HEADLIGHT_EXPORTED int headlight_stored_multiply_float32_avx512(const Product *);
HEADLIGHT_EXPORTED int headlight_stored_multiply_float32_neon(const Product *);
// With AMX, after `headlight_enable_amx` has returned 1.
HEADLIGHT_EXPORTED int headlight_attend_bfloat16_amx(const Attention *);
HEADLIGHT_EXPORTED int headlight_multiply_bfloat16_amx(const Product *);
HEADLIGHT_EXPORTED extern const int64_t headlight_columns_bfloat16_amx;
HEADLIGHT_EXPORTED int headlight_run_layers(const Layers *);
HEADLIGHT_EXPORTED extern const uint32_t headlight_sources;  // the checksum of the sources of this library
HEADLIGHT_EXPORTED int headlight_arm64_products(void);  // 1: SDOT, 2: SMMLA, 4: BFMMLA; on other processors 0
HEADLIGHT_EXPORTED int headlight_is_intel(void);  // 1 on processors of Intel, whose VDPBF16PS is slower than two FMAs
HEADLIGHT_EXPORTED void headlight_end_threads(void);  // of the calling thread, which starts others when it needs them
HEADLIGHT_EXPORTED int headlight_enable_amx(void);  // requests tiles from Linux for this process: 1 if granted
}  // extern "C"

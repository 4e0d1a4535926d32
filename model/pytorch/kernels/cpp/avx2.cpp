// The kernels in float32, for processors with AVX2, FMA and F16C.
#include "attention.h"
#include "elementwise.h"
#include "embedding.h"
#include "experts.h"
#include "linear.h"

using namespace HEADLIGHT_NAMESPACE;

const int64_t headlight_columns_float32_avx2 = PANEL_COLUMNS;

int headlight_attend_float32_avx2(const Attention *all) { return attend<Vectors<Float32>>(all); }

int headlight_add_norm_float32_avx2(const Norm *all) { return add_norm<Float32>(all); }

int headlight_multiply_float32_avx2(const Product *all) { return multiply<Float32>(all); }

int headlight_rotate_float32_avx2(const Rotation *all) { return rotate<Float32>(all); }

int headlight_gate_float32_avx2(const Gate *all) { return gate<Float32>(all); }

int headlight_route_float32_avx2(const Routing *all) { return route<Float32>(all); }

int headlight_collect_float32_avx2(const Collection *all) { return collect<Float32>(all); }

int headlight_embed_float32_avx2(const Embedding *all) { return embed(all); }

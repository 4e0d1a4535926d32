// The kernels in float32, for processors with AVX-512.
#include "attention.h"
#include "elementwise.h"
#include "embedding.h"
#include "experts.h"
#include "linear.h"

using namespace HEADLIGHT_NAMESPACE;

const int64_t headlight_columns_float32 = PANEL_COLUMNS;

int headlight_attend_float32(const Attention *all) { return attend<Vectors<Float32>>(all); }

int headlight_add_norm_float32(const Norm *all) { return add_norm<Float32>(all); }

int headlight_multiply_float32(const Product *all) { return multiply<Float32>(all); }

int headlight_rotate_float32(const Rotation *all) { return rotate<Float32>(all); }

int headlight_gate_float32(const Gate *all) { return gate<Float32>(all); }

int headlight_route_float32(const Routing *all) { return route<Float32>(all); }

int headlight_collect_float32(const Collection *all) { return collect<Float32>(all); }

int headlight_embed_float32(const Embedding *all) { return embed(all); }

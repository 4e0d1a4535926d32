// The kernels in bfloat16, for processors with AVX512-BF16: products use VDPBF16PS, all other steps float32.
#include "attention.h"
#include "elementwise.h"
#include "embedding.h"
#include "experts.h"
#include "linear.h"

using namespace HEADLIGHT_NAMESPACE;

const int64_t headlight_columns_bfloat16 = PANEL_COLUMNS;

int headlight_attend_bfloat16(const Attention *all) { return attend<Vectors<Bfloat16>>(all); }

int headlight_add_norm_bfloat16(const Norm *all) { return add_norm<Bfloat16>(all); }

int headlight_multiply_bfloat16(const Product *all) { return multiply<Bfloat16>(all); }

int headlight_rotate_bfloat16(const Rotation *all) { return rotate<Bfloat16>(all); }

int headlight_gate_bfloat16(const Gate *all) { return gate<Bfloat16>(all); }

int headlight_route_bfloat16(const Routing *all) { return route<Bfloat16>(all); }

int headlight_collect_bfloat16(const Collection *all) { return collect<Bfloat16>(all); }

int headlight_embed_bfloat16(const Embedding *all) { return embed(all); }

// The kernels in bfloat16, for processors with AVX512-BF16: products use VDPBF16PS, all other steps float32.
#include "attention.h"
#include "norm.h"
#include "products.h"

using namespace HEADLIGHT_NAMESPACE;

int headlight_attend_bfloat16(const Attention *all) { return attend<Vectors<Bfloat16>>(all); }

int headlight_add_norm_bfloat16(const Norm *all) { return add_norm<Bfloat16>(all); }

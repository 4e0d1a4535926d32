// The kernels in float32, for processors with AVX-512.
#include "attention.h"
#include "norm.h"
#include "products.h"

using namespace HEADLIGHT_NAMESPACE;

int headlight_attend_float32(const Attention *all) { return attend<Vectors<Float32>>(all); }

int headlight_add_norm_float32(const Norm *all) { return add_norm<Float32>(all); }

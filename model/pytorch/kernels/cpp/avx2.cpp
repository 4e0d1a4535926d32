// The kernels in float32, for processors with AVX2, FMA and F16C.
#include "activation.h"
#include "attention.h"
#include "norm.h"
#include "products.h"

using namespace HEADLIGHT_NAMESPACE;

int headlight_attend_float32_avx2(const Attention *all) { return attend<Vectors<Float32>>(all); }

int headlight_add_norm_float32_avx2(const Norm *all) { return add_norm<Float32>(all); }

int headlight_gelu_float32_avx2(float *x, int64_t count) { return activate<Gelu>(x, count); }

int headlight_gelu_tanh_float32_avx2(float *x, int64_t count) { return activate<GeluTanh>(x, count); }

int headlight_silu_float32_avx2(float *x, int64_t count) { return activate<Silu>(x, count); }

// Products that read and write float32, with weights in bfloat16; `build.py` compiles this file once for each of the kernels that
// have them.
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#include "rounded.h"
#else
#include "widened.h"
#endif

using namespace HEADLIGHT_NAMESPACE;

#define JOINED(name, kernels) headlight_##name##_##kernels
#define NAMED(name, kernels) JOINED(name, kernels)
#define WIDENED(name) NAMED(name, HEADLIGHT_KERNELS)
#define DECLARED(kernels) HEADLIGHT_BFLOAT16_WEIGHTS(kernels)

extern "C" {
DECLARED(HEADLIGHT_KERNELS)
}

int WIDENED(multiply)(const Product *all) {
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
    return multiply_in_bfloat16(all);
#else
    return multiply_widened(all);
#endif
}

const int64_t WIDENED(columns) = PANEL_COLUMNS;

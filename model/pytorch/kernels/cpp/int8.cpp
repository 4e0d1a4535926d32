// Products of eight-bit integers; `build.py` compiles this file once for each of EIGHT_BITS in instructions.py.
#include "linear/int8.h"

using namespace HEADLIGHT_NAMESPACE;

#define JOINED(name, kernels) headlight_##name##_##kernels
#define NAMED(name, kernels) JOINED(name, kernels)
#define INT8(name) NAMED(name, HEADLIGHT_KERNELS)
#define DECLARED(kernels) HEADLIGHT_INT8(kernels)

extern "C" {
DECLARED(HEADLIGHT_KERNELS)
}

const int64_t INT8(int8_steps) = STEPS;
const int64_t INT8(int8_group) = GROUP;
const int64_t INT8(int8_added) = ADDED;

int INT8(int8_multiply)(const Product *all) { return multiply_int8<HEADLIGHT_PRECISION>(all); }

// Products of eight-bit integers; `build.py` compiles this file once for each precision of what they read and write.
#include "linear/int8.h"

using namespace HEADLIGHT_NAMESPACE;

#define JOINED(precision) headlight_multiply_int8_##precision
#define NAMED(precision) JOINED(precision)

int NAMED(HEADLIGHT_KERNELS)(const Product *all) { return multiply_int8<HEADLIGHT_PRECISION>(all); }

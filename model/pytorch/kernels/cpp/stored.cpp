// Products in float32 with weights as a file holds them; `build.py` compiles this file once for each of the kernels for float32.
#include "linear/stored.h"

using namespace HEADLIGHT_NAMESPACE;

#define JOINED(kernels) headlight_stored_multiply_##kernels
#define NAMED(kernels) JOINED(kernels)

int NAMED(HEADLIGHT_KERNELS)(const Product *all) { return multiply_stored(all); }

// Products in float32 with weights as a file holds them, with AVX-512.
#include "linear/stored.h"

using namespace HEADLIGHT_NAMESPACE;

int headlight_multiply_stored(const Product *all) { return multiply_stored(all); }

// Products in float32 with weights in bfloat16, with AVX2.
#include "linear/widened.h"

using namespace HEADLIGHT_NAMESPACE;

int headlight_multiply_bfloat16_avx2(const Product *all) { return multiply<Widened>(all); }

const int64_t headlight_columns_bfloat16_avx2 = PANEL_COLUMNS;

// A linear layer in float32 with weights in bfloat16: activation(x Wᵀ + b), with half the bytes to read of W.
//
// As in linear.h, weights lie in panels, here of 16-bit numbers, which become float32 in registers. That takes the place of
// the loads of a product in float32 and occupies other units of the processor than its multiplications. So few rows take as
// much less time as the memory has less to deliver, and many rows no more. Results have the same bits as those in float32
// of weights that were rounded to bfloat16.
#include "linear.h"

namespace HEADLIGHT_NAMESPACE {

// The precision of such products. Of the sixteen columns of a panel, its rows have the first four of both vectors, and then the
// last four: the low and the high half of a lane of 128 bits become lanes of different vectors.
struct Widened : Float32 {
    using Right = uint16_t;
    static Floats right(const uint16_t *from, int v) {
        static_assert(BLOCK_VECTORS == 2);
        const Words both = load_aligned_words(from);
        return v == 0 ? widen_low_halves(both) : widen_high_halves(both);
    }
};

}  // namespace HEADLIGHT_NAMESPACE

using namespace HEADLIGHT_NAMESPACE;

int headlight_multiply_bfloat16_avx2(const Product *all) { return multiply<Widened>(all); }

const int64_t headlight_columns_bfloat16_avx2 = PANEL_COLUMNS;

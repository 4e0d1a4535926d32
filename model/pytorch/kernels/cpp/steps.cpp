// The steps of a layer in one precision, for one set of instructions; `build.py` compiles this file once for each.
//
// HEADLIGHT_KERNELS ends the names of the functions, HEADLIGHT_PRECISION is Float32 or Bfloat16. In bfloat16, products use
// VDPBF16PS where there is AVX512-BF16, and all else float32.
#include "attention/heads.h"
#include "rows/elementwise.h"
#include "rows/embedding.h"
#include "rows/experts.h"
#include "linear/linear.h"

using namespace HEADLIGHT_NAMESPACE;

using Precision = HEADLIGHT_PRECISION;

#define JOINED(step, kernels) headlight_##step##_##kernels
#define NAMED(step, kernels) JOINED(step, kernels)
#define STEP(step) NAMED(step, HEADLIGHT_KERNELS)
#define DECLARED(kernels) HEADLIGHT_STEPS(kernels)

extern "C" {
DECLARED(HEADLIGHT_KERNELS)
}

const int64_t STEP(columns) = PANEL_COLUMNS;

int STEP(attend)(const Attention *all) { return attend<Vectors<Precision>>(all); }

int STEP(add_norm)(const Norm *all) { return add_norm<Precision>(all); }

int STEP(multiply)(const Product *all) { return multiply<Precision>(all); }

int STEP(rotate)(const Rotation *all) { return rotate<Precision>(all); }

int STEP(gate)(const Gate *all) { return gate<Precision>(all); }

int STEP(route)(const Routing *all) { return route<Precision>(all); }

int STEP(collect)(const Collection *all) { return collect<Precision>(all); }

int STEP(embed)(const Embedding *all) { return embed(all); }

// Attention and products in bfloat16 for processors with AMX.
#include "attention/heads.h"
#include "linear/tiled.h"
#include "tiles.h"

#ifndef HEADLIGHT_EMULATE_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

using namespace HEADLIGHT_NAMESPACE;

int headlight_attend_bfloat16_amx(const Attention *all) { return attend<Tiles>(all); }

int headlight_multiply_bfloat16_amx(const Product *all) { return multiply_tiled(all); }

const int64_t headlight_columns_bfloat16_amx = TILED_COLUMNS;

int headlight_enable_amx() {
#ifdef HEADLIGHT_EMULATE_TILES
    return 1;
#else
    // Linux allows tiles only after a process requests them: ARCH_REQ_XCOMP_PERM for XFEATURE_XTILEDATA.
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#endif
}

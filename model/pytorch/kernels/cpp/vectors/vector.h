// The vectors of the instruction set that a file is compiled for, and the operations that the kernels use on them.
//
// The headers are compiled once for each set. Everything in them is in a namespace of that set: if two sets shared the
// name of an inline function, the linker would keep one of the copies, and a processor without its instructions might
// run it.
#pragma once

#include <cstdint>
#include <cstring>

// `build.py` defines HEADLIGHT_INSTRUCTIONS as the name of the set, and HEADLIGHT_VECTORS as the header of its vectors.
#define HEADLIGHT_NAMESPACE headlight::HEADLIGHT_INSTRUCTIONS

namespace HEADLIGHT_NAMESPACE {

// Have a cache line brought into the second-level cache; the address need not be valid.
inline void fetch(const void *from) { __builtin_prefetch(from, 0, 2); }
inline void fetch_to_write(const void *from) { __builtin_prefetch(from, 1); }

}  // namespace HEADLIGHT_NAMESPACE

#include HEADLIGHT_VECTORS

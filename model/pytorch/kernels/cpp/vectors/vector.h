// The vectors of the instruction set that a file is compiled for, and the operations that the kernels use on them.
//
// The headers are compiled once for each set. Everything in them is in a namespace of that set: if two sets shared the
// name of an inline function, the linker would keep one of the copies, and a processor without its instructions might
// run it.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#if defined(__AMX_TILE__)
#define HEADLIGHT_NAMESPACE headlight::amx
#elif defined(__AVX512VNNI__) && defined(__AVX512BF16__)
#define HEADLIGHT_NAMESPACE headlight::avx512_vnni_bf16
#elif defined(__AVX512VNNI__)
#define HEADLIGHT_NAMESPACE headlight::avx512_vnni
#elif defined(__AVX512BF16__)
#define HEADLIGHT_NAMESPACE headlight::avx512_bf16
#elif defined(__AVX512F__)
#define HEADLIGHT_NAMESPACE headlight::avx512
#else
#define HEADLIGHT_NAMESPACE headlight::avx2
#endif

namespace HEADLIGHT_NAMESPACE {

// Have a cache line brought into the second-level cache; the address need not be valid.
inline void fetch(const void *from) { _mm_prefetch((const char *)from, _MM_HINT_T1); }

}  // namespace HEADLIGHT_NAMESPACE

#ifdef __AVX512F__
#include "avx512.h"
#else
#include "avx2.h"
#endif

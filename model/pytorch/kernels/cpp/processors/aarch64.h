// What the code for every processor needs of those with ARM64.
#pragma once

#include <sys/auxv.h>

// Wait for some ten nanoseconds. YIELD would take no time on cores that run one thread.
inline void pause_briefly() { asm volatile("isb" ::: "memory"); }

inline bool is_intel() { return false; }

// What Linux says of the processor's instructions for products.
inline int arm64_products() {
    const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    return (first & HWCAP_ASIMDDP ? 1 : 0) | (second & HWCAP2_I8MM ? 2 : 0) | (second & HWCAP2_BF16 ? 4 : 0);
}

// What the code for every processor needs of those with x86-64.
#pragma once

// Let the other thread of the core run while this one waits.
inline void pause_briefly() { __builtin_ia32_pause(); }

inline int arm64_products() { return 0; }

inline bool is_intel() {
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
}

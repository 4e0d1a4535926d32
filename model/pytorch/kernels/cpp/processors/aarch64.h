// What the code for every processor needs of those with ARM64.
#pragma once

// Wait for some ten nanoseconds. YIELD would take no time on cores that run one thread.
inline void pause_briefly() { asm volatile("isb" ::: "memory"); }

inline bool is_intel() { return false; }

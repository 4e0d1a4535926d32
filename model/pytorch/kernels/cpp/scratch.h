// Scratch memory of the calling thread, which one step uses at a time.
//
// The kernels of all instruction sets and precisions share it: each of its own would keep what it once needed.
#pragma once

#include <cstddef>

// Returns at least `bytes`, aligned to a page; null if out of memory. It is valid until the thread calls this again, and kept
// until the thread ends.
char *reserve_scratch(size_t bytes);

"""The native kernels in C++, and the code that builds, finds and calls them."""

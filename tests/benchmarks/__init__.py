"""The simulations of benchmarks/, which others rely on."""

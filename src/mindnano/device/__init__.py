"""Who computes attention over a block, and large projections: the CPU, or the RK3588's NPU where that is faster.

Imports kernels and cache, and of the model only what its arrays and clocks are.
"""

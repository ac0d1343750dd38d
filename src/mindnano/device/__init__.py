"""Who computes attention over a block. Imports kernels and cache only."""

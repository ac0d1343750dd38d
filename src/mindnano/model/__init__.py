"""The decoder, one file a block: KDA, MLA, mixture of experts. Imports kernels, cache and checkpoint only."""

"""Model files: configuration, safetensors, official checkpoints, the packed file, converting, synthesis.

May import `kernels`, `errors` and `units`; knows nothing of the model's arithmetic.
"""

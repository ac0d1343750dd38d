"""The compiled kernels and their NumPy twins. Imports nothing else of the package."""

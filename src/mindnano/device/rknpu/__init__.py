"""The RK3588's NPU through its matmul library, bound at run time. Imports kernels, cache and this folder only."""

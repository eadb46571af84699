"""The executor on one CUDA GPU, through CuPy."""

"""The executor that runs the CUDA kernel's source on CPU threads."""

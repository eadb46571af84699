"""`synth torch`: programs inside PyTorch jobs on this machine."""

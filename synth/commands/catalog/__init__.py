"""The commands of `synth catalog`, one a file."""

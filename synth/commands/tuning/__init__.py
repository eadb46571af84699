"""The choice of an algorithm for each message size: `synth tune` and `synth build`."""

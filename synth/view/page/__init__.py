"""The page of `synth report`: one HTML file with frontiers, schedules in motion, times and proofs; needs no network and
no library."""

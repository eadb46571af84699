"""What `synth verify` trusts: replay of schedules, every certificate, whole documents. Imports values and errors
only."""

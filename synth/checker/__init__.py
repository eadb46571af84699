"""The part of synth that `synth verify` trusts: replay of schedules, certificates, and whole documents.

It imports values and errors only. `documents.dispatch.check_document` is its one door.
"""

"""The adversary of `synth verify`: documents that are nearly right, and a judge that shares no code with what it
judges.

seeds      valid documents of every schema and every kind of certificate
operators  name -> a change of a document: of one value, or of what it claims
settle     what an attacker does afterwards: digests and derived fields are computed anew, so that all agrees
oracle     whether an accepted document is true: replay by sets, linear programs, searches for schedules
campaign   mutants by the thousand, the verifier as `synth verify` calls it, and what was found
"""

# topology: ring:4
# expect: ambiguous_sum.py:8: `+` is ambiguous: write .add(data) for a sum, .join(data) for both pieces
from synth.language import algorithm


@algorithm("allreduce")
def plus(a):
    a.input(0) + a.input(1)

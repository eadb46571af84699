# topology: ring:4
# expect: python_error.py:8: IndexError: tuple index out of range
from synth.language import algorithm


@algorithm("allgather")
def beyond(a):
    a.input(a.ranks[4])

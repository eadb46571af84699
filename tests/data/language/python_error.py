# topology: ring:4
# expect: python_error.py:10: ValueError: Invalid literal for Fraction: 'half'
from fractions import Fraction

from synth.language import algorithm


@algorithm("all_gather")
def halves(a):
    a.input(0)[0 : Fraction("half")]

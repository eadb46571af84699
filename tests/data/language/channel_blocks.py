# topology: line:2
# expect: channel_blocks.py:10: channel 1 from rank 0 to rank 1 is in block "a" (channel_blocks.py:10) and in block "b" (channel_blocks.py:12); a channel is in one block of a rank
from synth.language import algorithm


@algorithm("broadcast")
def two_blocks_of_a_channel(a):
    one, other = a.input(0).split(2)
    with a.hints(block="a", channel=1):
        one.to(1)
    with a.hints(block="b", channel=1):
        other.to(1)

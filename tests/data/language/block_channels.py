# topology: line:3
# expect: block_channels.py:9: block "down" of rank 1 is on no named channel (block_channels.py:9) and on channel 2 (block_channels.py:11); a block has one channel
from synth.language import algorithm


@algorithm("broadcast")
def two_channels_of_a_block(a):
    with a.hints(block="down"):
        middle = a.input(0).to(1)
        with a.hints(channel=2):
            middle.to(2)

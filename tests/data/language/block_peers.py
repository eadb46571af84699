# topology: fully-connected:4
# expect: block_peers.py:10: block "up" of rank 2 sends to 3 (block_peers.py:10) and to 1 (block_peers.py:12); a block of MSCCL-IR has one send peer: name another block
from synth.language import algorithm


@algorithm("allgather")
def two_peers_of_a_block(a):
    held = a.inputs()
    with a.hints(block="up"):
        held[2].to(3)
    with a.hints(block="up"):
        held[2].to(1)
    for rank in a.ranks:
        for other in a.others(rank):
            if (rank, other) not in ((2, 3), (2, 1)):
                held[rank].to(other)

"""Published bandwidths of allgather in GB/s, two digits: the bound by cuts, which packed trees reach."""

GBPS = {
    "dgx1": 171.43,
    "dgx-a100": 342.86,
    "dgx-a100*2:net=odd-even": 346.67,
    "dgx-a100*4:net=odd-even": 266.67,
    "mi250": 342.86,
    "mi250*2": 354.13,
    "ndv2*4": 16.67,
    "rail:2x8": 10.67,
    "fat-tree:16": 1.07,
    "torus:3x4": 4.36,
}

from synth.language import algorithm


@algorithm("allreduce")
def two_shot(a):
    for owner in a.ranks:
        total = a.sum(owner, [a.input(rank).part(owner, a.size) for rank in a.ranks])
        for rank in a.others(owner):
            total.to(rank)

"""The calls that a file of a runtime serves, as the code that registers it with MSCCL++ compares them."""

from __future__ import annotations

from typing import NamedTuple


class PlanRegistration(NamedTuple):
    """The calls that one MSCCL++ plan serves: sizes from `low` to `high` bytes, multiples of `divisor`.

    Sizes are MSCCL++'s: the input's bytes, for allgather the output's. `ranks_per_node`: of the jobs that it is for, 0
    for any. `switches`: it uses switch channels, which sum no 8-bit types. `name`: the path of the file without
    ``.json``, in the folder of the code that registers it.
    """

    collective: str
    ranks: int
    ranks_per_node: int
    low: int
    high: int
    divisor: int
    in_place: bool
    switches: bool
    name: str

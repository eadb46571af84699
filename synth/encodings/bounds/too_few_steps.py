"""Lower bounds on the number of steps: by distances, and by a refutation of all schedules of a single chunk.

A rank holds one sum of a chunk at a time, which distances do not see. CaDiCaL's proof is the certificate
(`synth.checker.certificates.single_chunk`).
"""

from __future__ import annotations

from synth.checker.certificates import cuts, single_chunk
from synth.checker.certificates.instance import Instance
from synth.encodings import bounds
from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network

# Most variables of the formula of a chunk (a DGX-1, two steps: 344); more take many minutes.
MOST_VARIABLES = 400
# Most conflicts of a query.
CONFLICTS = 4_000


def too_few_steps(network: Network, collective: Collective, steps: int) -> LowerBound | None:
    """Return the bound `steps` + 1 on the number of steps, proved by a refutation of schedules of one chunk.

    None if one chunk has a schedule of `steps` steps, if the limited search does not decide, or if its formula has
    too many variables.
    """
    if not _small(network, collective, steps):
        return None
    from synth.solvers.boolean_model import Model
    from synth.solvers.python_sat import Cadical, refute

    try:
        problem = Instance(network, collective.document)
        model = Model()
        model.clauses = list(single_chunk.formula(problem, 0, steps))
        model.variables = max((abs(x) for clause in model.clauses for x in clause), default=0)
        lines = refute(model.clauses) if Cadical(0, CONFLICTS).solve(model).status == "unsat" else None
        if lines is None:
            return None
        certificate = {
            "kind": "too-few-steps", "problem": problem_fingerprint(network, collective), "steps": steps, "unit": 0,
            "proof": single_chunk.packed(lines),
        }  # fmt: skip
        return LowerBound(cuts.check(certificate, network, collective.document), certificate)
    except SynthError:  # a step of the proof came without its reasons, or it is too long
        return None


def steps(network: Network, collective: Collective) -> LowerBound:
    """Return the greatest lower bound on the number of steps, by distances (`bounds.steps`) or by `too_few_steps`.

    Raises InfeasibleError as `bounds.steps`.
    """
    least = bounds.steps(network, collective)
    while least.value > 0 and (few := too_few_steps(network, collective, int(least.value))) is not None:
        least = few
    return least


def _small(network: Network, collective: Collective, steps: int) -> bool:
    """Return True if the formula of one chunk has few enough variables."""
    if collective.units != 1 or not collective.combining or steps < 1:
        return False
    return (steps + 1) * network.ranks * (len(collective.pre[0]) + 1) + 2 * steps * len(
        network.routes
    ) <= MOST_VARIABLES

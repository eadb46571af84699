"""The judge of lowered programs: lint proves them, the reference executor computes the collective, files hold them."""

import json
import random

from synth.program import analysis, text
from synth.program.analysis.analysis import modes
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES
from synth.runtime import reference_data
from synth.runtime.dtypes import dtype
from synth.runtime.reference.executor import Reference

TYPES = (
    ("int32", "sum"), ("int8", "max"), ("float16", "sum"), ("bfloat16", "sum"), ("float32", "prod"), ("float64", "avg"),
)  # fmt: skip


def right(program: Program, runtime: str = "synth", rng: random.Random | None = None, network=None) -> None:
    """Lint finds nothing, and the executor computes the collective in every mode, however the messages are split and
    delayed."""
    rng = rng or random.Random(program.name)
    report = analysis.check(program, runtime)
    assert [str(f) for f in report.findings if f.severity != "remark" and f.rule not in ("dispatch", "root")] == []
    assert report.safe is None
    # every flag has its dependency: lint calls one without harmless
    for gpu in program.gpus if not program.one_sided else ():
        ops = {(b, i): op for b, block in enumerate(gpu.blocks) for i, op in enumerate(block.ops)}
        assert {at for at, op in ops.items() if op.flag} == {dep[:2] for op in ops.values() for dep in op.deps}
    layout, ways = (
        Layout(program.collective, program.chunks),
        {(route.src, route.dst) for route in getattr(network, "routes", ())},
    )
    timed = not program.one_sided or all((b, a) in ways for a, b in ways)  # signals of one-sided programs go back
    for mode in modes(program):
        name, op = rng.choice(TYPES)
        op = op if op in RUNTIMES[runtime].operators else "sum"
        depth = rng.choice((None, FIFO_DEPTH[program.protocol], 8))
        executor = Reference(
            network=network if timed and rng.random() < 0.5 else None,
            delays=rng.randrange(99),
            depth=depth,
            part=rng.choice((None, 1, 2)),
            runtime=runtime,
        )
        given = reference_data.random_inputs(layout, rng.randint(1, 4), dtype(name), op, rng.randrange(99))
        done = executor.run(program, given, dtype=name, op=op, in_place=mode == "in")
        reference_data.check(layout, dtype(name), op, given, done.outputs)
    assert text.parse(text.dump(program)) == program
    assert Program.from_json(json.loads(json.dumps(program.to_json()))) == program

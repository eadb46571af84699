"""Columns of a compressed schedule as plain lists that can be compared."""

from synth.model.compressed_schedule import CompressedSchedule


def columns(schedule: CompressedSchedule) -> list:
    """Return its numbers and the columns of its sends."""
    arrays = (schedule.step_rounds, schedule.step, schedule.chunk, schedule.path, schedule.kind)
    problem = (schedule.topology.name, schedule.collective, schedule.root, schedule.chunks)
    return [*problem, list(schedule.paths), list(schedule.generators), *(array.tolist() for array in arrays)]

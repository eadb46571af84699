"""Exporters of programs, one file a format.

An exporter is a frozen class, found by its name in `EXPORTERS` or brought by a plug-in (``exporters.NAME``)::

    class MyFormat:
        suffix = ".xml"                        # of a file
        runtimes = ("msccl-executor", "msccl")       # what it can write for; schedules are lowered for the one chosen
        def emit(self, program: Program, target: Target) -> str

`emit` prints the program unchanged, or raises SynthError that names an exceeded limit of the runtime and a remedy.
The same program and target give the same text.
"""

from collections.abc import Mapping

EXPORTERS: Mapping[str, str] = {
    "msccl-xml": "synth.export.msccl_xml.emit:MscclXml",
    "mscclpp": "synth.export.mscclpp.emit:Mscclpp",
    "trace": "synth.export.chrome_trace:Trace",
}
SUMMARIES: Mapping[str, str] = {
    "msccl-xml": "MSCCL-IR for msccl, msccl-executor-nccl and RCCL (--runtime msccl|msccl-executor|rccl)",
    "mscclpp": "MSCCL++ execution plan (JSON)",
    "trace": "timeline of the steps, for Perfetto or chrome://tracing",
}
# Formats of `synth export --to` that are made of a schedule, not of a Program.
OF_SCHEDULES: Mapping[str, str] = {
    "chakra": "folder of Chakra execution traces (of a schedule)",
}

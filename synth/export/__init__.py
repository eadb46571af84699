"""Exporters of lowered programs, one file a format. None is built yet: MSCCL-IR and MSCCL++ come with the Program."""

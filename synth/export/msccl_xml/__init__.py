"""MSCCL-IR: the XML that msccl, msccl-executor-nccl and RCCL load."""

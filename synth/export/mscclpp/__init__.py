"""MSCCL++ execution plans in JSON."""

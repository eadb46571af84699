"""Program: what every rank's thread blocks do, neutral between MSCCL-IR, MSCCL++ plans and our own executors."""

"""The executor in MPI processes, one a rank."""

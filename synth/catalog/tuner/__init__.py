"""The tuner: which algorithm for which message sizes, from a cost model or from measurements."""

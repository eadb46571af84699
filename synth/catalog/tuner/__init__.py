"""The tuner: the choice of an algorithm for each range of message sizes, from a cost model or from measurements."""

"""The catalog: a database of the algorithms of a team's machines, its batch jobs, its measurements and its tuner."""

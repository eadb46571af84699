"""Static analysis of Programs: whose rules a runtime enforces, what the data end as, and at which sizes nothing waits for ever.

Works on Program values alone and shares no code with what makes or runs them.
"""

"""Client quotas: the limits, and the measurement of the rates that they limit.

rates.py           a rate over sampled windows, and the time until it is below a bound
token_bucket.py    credit that fills evenly and is spent in bursts
quota_limits.py    the eight levels at which a client's limit may be set
quota_callback.py  limits computed by an operator's own code
"""

"""Engine D: every course of events of a small case, one subject a file."""

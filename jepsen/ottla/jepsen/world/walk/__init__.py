"""Engine A: walks without a clock, one subject a file."""

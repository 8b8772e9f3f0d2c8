"""Engine B: timed events on a faulty network and faulty disks, one subject a file."""

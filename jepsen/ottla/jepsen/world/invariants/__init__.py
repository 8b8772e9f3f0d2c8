"""What must hold, by name, one domain a file; every engine judges by these."""

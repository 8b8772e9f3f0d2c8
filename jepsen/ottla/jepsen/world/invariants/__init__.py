"""Named invariants that every engine checks, one domain per file."""

"""Named invariants that the search engines of the simulator check, one domain per file."""

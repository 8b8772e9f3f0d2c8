"""Chance from a seed for what is made for one test: raft's own, under the world's roof."""

from ottla.raft.testing.seeded_rng import SeededRng

__all__ = ["SeededRng"]

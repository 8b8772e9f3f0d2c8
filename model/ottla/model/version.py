"""Ottla's version as a constant, because reading the version of an installed package imports 50
modules."""

VERSION = "0.2.0"
"""Equals the version in pyproject.toml."""

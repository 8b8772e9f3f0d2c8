"""Ottla's version, as a constant: to read an installed package's own takes 50 modules."""

VERSION = "0.1.0"
"""As in pyproject.toml."""

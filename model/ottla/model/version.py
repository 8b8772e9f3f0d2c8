"""Ottla's version as a constant. Reading the version from the metadata of the installed package
would import 50 modules."""

VERSION = "0.2.0"
"""Version of Ottla, equal to the version in pyproject.toml."""

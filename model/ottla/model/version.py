"""Ottla's version as a constant. Reading the version from the metadata of the installed package
would import 50 modules."""

VERSION = "0.3.0.dev0"
"""Version of Ottla, equal to the version in pyproject.toml."""

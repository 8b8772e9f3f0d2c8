"""The controller package."""

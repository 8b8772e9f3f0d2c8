"""The proto package."""

"""The node package."""

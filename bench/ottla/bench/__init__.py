"""The bench package."""

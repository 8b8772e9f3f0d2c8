"""The telemetry package."""

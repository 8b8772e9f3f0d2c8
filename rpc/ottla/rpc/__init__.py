"""The rpc package."""

"""A topic of one partition for a measurement, made and taken away."""

from ottla.client import open_admin


async def make_topic(bootstrap: str, name: str) -> None:
    """Create it."""
    async with open_admin(bootstrap) as admin:
        await admin.create_topic(name, partition_count=1)


async def delete_topic(bootstrap: str, name: str) -> None:
    """Delete it."""
    async with open_admin(bootstrap) as admin:
        await admin.delete_topic(name)

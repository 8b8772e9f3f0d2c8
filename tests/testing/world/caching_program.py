"""A program that keeps state in module globals, for tests of copied modules."""

import trio

import ottla.testing.world as world

SEEN: list[str] = []


class Settings:
    """Settings that the program shares with all of its code."""

    retries = 0


async def see(name: str) -> None:
    """Record a name, store all names seen so far in the world's timeline, and wait."""
    from tests.testing.world import caching_program  # as code of another module would read it

    SEEN.append(name)
    caching_program.Settings.retries += 1
    world.mark(f"{','.join(caching_program.SEEN)} {Settings.retries}")
    await trio.sleep_forever()

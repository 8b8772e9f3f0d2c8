"""Runtime of programs in a simulated world: event loop, clocks, random numbers, and refused calls.

guards.py            replaces functions of the standard library during a run
sources.py           clocks and random numbers of the processes in a run
datetimes.py         datetime.datetime and datetime.date with the world's clock
stable_sets.py       sets whose order is the same in each process
asyncio_loop.py      asyncio's event loop on a task of a simulated machine
asyncio_streams.py   asyncio's transport over the simulated network
asyncio_tasks.py     futures and tasks with stable hashes
asyncio_refusals.py  methods of event loops that have no meaning in a world
"""

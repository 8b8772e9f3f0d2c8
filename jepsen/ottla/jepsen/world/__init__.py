"""The deterministic world: the seams' second implementations, driven by one seed.

engine.py            what a search engine is, what a run tells, the table of all of them
chance.py            every choice of a run, drawn from its seed, written down, played again
trace.py             what happened, as one hash
rare.py              counters of rare states that must be reached
noted_errors.py      unexpected errors that a run must not have
violation.py         a broken invariant, by its name
runner.py            many seeds over processes
report.py            what a search found, as words and figures
soak.py              some time spent on every engine, each to its share
soak_table.py        what came of it, as one table
shrink.py            makes a failing run small
corpus.py            failures worth keeping, as files
walk/                engine `walk`: walks without a clock
whole/               engine `whole`: whole nodes and clients on trio, in virtual time
invariants/          what must hold, one domain a file
bugs/                the bug bank: mutants that the engines must find
rng.py               chance from a seed
disk.py              a disk in memory that forgets, tears and fails on demand
inode.py             a file of it: as processes see it, as the device holds it, what is in memory
simulated_file.py    a handle on one, whose descriptor may be given back
disk_faults.py       what goes wrong with it: calls that fail, directories that hang or are gone
disk_conformance.py  what every Disk promises; the real one passes too
rpc_conformance.py   what every Rpc promises; gRPC passes too
transport_conformance.py  what every server and way to it promise; sockets pass too
"""

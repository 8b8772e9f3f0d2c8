"""The deterministic simulator: simulated disks, networks and clocks, driven by one seed.

engine.py            interface of a search engine, outcome of a run, table of the engines
chance.py            every random choice of a run, drawn from its seed, recorded, and replayed
trace.py             the events of a run, as one hash
rare.py              counters of rare states that a search must reach
noted_errors.py      unexpected errors, each of which ends a run
violation.py         the exception for a broken invariant
runner.py            runs many seeds over several processes
report.py            results of a search, as text and figures
soak.py              a search with all engines, each with its share of the time
soak_table.py        results of a soak, as one table
shrink.py            reduction of a failing run
corpus.py            failing runs worth keeping, as files
walk/                engine `walk`: random walks without a clock
whole/               engine `whole`: whole nodes and clients on trio, in virtual time
invariants/          the invariants, one domain per file
bugs/                mutants of Ottla's own code, which the engines must find
rng.py               random numbers from a seed
disk_waits.py        reads that wait for the disk
disk.py              a disk in memory that loses, tears and fails writes on demand
inode.py             a file of that disk: as processes see it, on the device, and in the page cache
simulated_file.py    a file handle, whose descriptor may be closed while it is idle
object_store.py      an object store that fails, loses responses, and lists old states
disk_faults.py       faults of the disk: failing calls, directories that hang or are lost
"""

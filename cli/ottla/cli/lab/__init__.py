"""Commands for testing Ottla itself: the deterministic simulator, Jepsen runs on real processes,
and benchmarks.

world.py          `ottla world`
world_soak.py     simulated schedules for a given time
world_fuzz.py     fuzzers
world_tests.py    replays of tests with `ottla.testing.world`
jepsen.py         `ottla jepsen`
jepsen_plan.py    arguments and exit codes that its verbs share
jepsen_runs.py    one run, in this process or in a child process
jepsen_matrix.py  every workload under every nemesis
jepsen_bugs.py    runs with injected bugs
jepsen_view.py    tables of a run
jepsen_serve.py   stored results over HTTP
bench.py          `ottla bench`
"""

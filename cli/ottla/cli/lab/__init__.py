"""Commands for testing Ottla itself: the deterministic simulator, Jepsen runs on real processes,
and benchmarks.

world.py          `ottla world`
world_soak.py     simulations for a fixed time
world_fuzz.py     fuzzers of parsers
world_programs.py  property tests of programs that use Kafka, for a fixed time
world_tests.py    replays of tests with `ottla.testing.world`
jepsen.py         `ottla jepsen`
jepsen_plan.py    arguments and exit codes that the verbs of `ottla jepsen` share
jepsen_runs.py    one run, in this process or in a child process
jepsen_matrix.py  every workload under every nemesis
jepsen_bugs.py    runs with injected bugs
jepsen_view.py    tables of a run
jepsen_serve.py   stored results over HTTP
bench.py          `ottla bench`
"""

"""Commands of the lab: the deterministic world, and runs on real processes.

world.py          `ottla world`
world_soak.py     schedules until a time is over
world_fuzz.py     fuzzers
jepsen.py         `ottla jepsen`
jepsen_plan.py    arguments and exit codes that its verbs share
jepsen_runs.py    one run, in a process of its own
jepsen_matrix.py  every workload under every nemesis
jepsen_bugs.py    runs with planted bugs
jepsen_view.py    tables of a run
jepsen_serve.py   stored reports over HTTP
reference_pages.py  the generated pages of docs/
cli_page.py       docs/cli.md
client_page.py    the reference in docs/client.md
markdown.py       tables
completion_scripts.py  completions/, in the frames beside it
"""

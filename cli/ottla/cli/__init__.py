"""The `ottla` command.

main.py      the table of commands, and exit codes: start here
terminal.py  everything that is printed
parser.py    the parser of a command
examples.py  one example of each subcommand
common.py    arguments that several commands share, the connection to the cluster
imports.py   imports that collect no garbage
outcomes.py  results of changes, one line each
profiles.py  clusters under a name, in the user's config.toml
secret_files.py  files of passwords that everyone can read
suggestions.py  what a misspelt word was meant to be
times.py     durations and points in time as people write them
completion.py  `ottla completion`; completions/ has the scripts, which are generated
version.py   `ottla version`

background/  commands that continue after the prompt is back
records/     produce and consume
logs/        log directories, offline
topics/      topics and settings
groups/      groups of consumers
cluster/     starting, stopping, surveying and changing a cluster and its nodes
metrics/     client telemetry
pipelines/   topics through Spark
lab/         the deterministic world and Jepsen runs
"""

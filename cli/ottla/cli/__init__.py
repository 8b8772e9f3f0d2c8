"""The `ottla` command.

main.py      the table of commands and the exit codes: start here
terminal.py  functions that print to the terminal
tables.py    prints tables, with one form for bytes, durations and times
options.py   declarations of options
verbs.py     declarations of verbs: options and handler
parser.py    the argument parser of a command
examples.py  an example of each subcommand
common.py    options that several commands share, and the address and login of the cluster
confirmation.py  the confirmation of changes, --dry-run and --yes
imports.py   imports without garbage collection
outcomes.py  results of several requests, one line each
own_command.py  the shell command that starts this program again
process_title.py  hides secrets from `ps`
profiles.py  named clusters in the user's config.toml
secret_files.py  warnings of password files that every user can read
suggestions.py  corrections of misspelt words
times.py     parses durations
completion.py  `ottla completion`; the generated scripts are in completions/
version.py   `ottla version`

background/  commands that continue in the background
backup/      backups of topics and groups
records/     produce and consume
logs/        log directories, offline
topics/      topics and settings
groups/      consumer groups and share groups
transactions/  transactional ids and hanging transactions
tier/        copies of segments in an object store
cluster/     starting, stopping, surveying and changing a cluster and its nodes
security/    ACLs, certificates and listeners
users/       credentials and delegation tokens
quotas/      quotas of clients
metrics/     client telemetry
pipelines/   pipelines in Spark, exports as tables, and SQL queries
lab/         deterministic simulations, Jepsen runs and benchmarks
"""

"""Commands on the files of log directories, without a broker.

log_commands.py  `ottla log`: its verbs
log_dump.py      `ottla log dump|index|snapshot|checkpoint`: files shown as rows
log_rows.py      rows of every kind of file, by its name
log_view.py      rows as tables and as JSON, printed while they are read
log_verify.py    `ottla log verify`: every file held against the others
log_recover.py   `ottla log recover`: what a start after a crash does, shown first
preview_disk.py  a disk whose changes are kept aside, and listed
read_only.py     files that are only read, and whether a process writes them
"""

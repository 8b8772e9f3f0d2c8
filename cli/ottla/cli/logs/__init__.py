"""Commands that read or repair the files of log directories, without a broker.

log_commands.py  `ottla log`: its verbs
log_dump.py      `ottla log dump|index|snapshot|checkpoint`: files shown as rows
log_rows.py      rows of every kind of file, by its name
log_view.py      rows as tables and as JSON, printed while they are read
log_verify.py    `ottla log verify`: checks every file against the others
log_recover.py   `ottla log recover`: the recovery after a crash, previewed first
preview_disk.py  a disk that keeps changes in memory and lists them
read_only.py     read-only files, and whether a process writes them
"""

"""Commands that read or repair the files of log directories, without a broker.

log_commands.py  `ottla log`: declarations of its verbs
log_dump.py      `ottla log dump|index|snapshot|checkpoint`: contents of files
log_rows.py      reads every kind of file as rows
log_view.py      prints rows as tables and as JSON while they are read
log_verify.py    `ottla log verify`: checks whether the files are consistent
log_recover.py   `ottla log recover`: the recovery after a crash, with a preview
preview_disk.py  a simulated disk that records changes instead of making them
read_only.py     read-only files, and the check whether a process writes them
"""

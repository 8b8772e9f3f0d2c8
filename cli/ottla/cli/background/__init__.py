"""Commands that continue in the background after they have returned to the shell.

detached.py  runs a command in a background process, and waits until the process is ready
"""

"""Commands that continue in the background after the shell prompt is back.

detached.py  runs a command's body in a background process, and waits until it is ready
"""

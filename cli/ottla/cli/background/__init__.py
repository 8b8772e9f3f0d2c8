"""Commands that continue after the terminal has its prompt back.

detached.py  runs a command's body in a background process until that reports readiness
"""

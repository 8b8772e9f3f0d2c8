"""`ottla server FILE`: a node with the roles that its settings file gives it.

server.py                 `ottla server`: start here
combined_config.py        settings of a process with both roles
combined_driver.py        a process with both roles
"""

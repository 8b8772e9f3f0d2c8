"""`ottla server FILE`: the nodes that a settings file describes.

server.py                 `ottla server`: start here
combined_config.py        settings of a process with both roles
combined_driver.py        runs a process with both roles
host_brokers.py           the brokers of a host: ids, ports, directories, from one file
cores.py                  number of processor cores
host.py                   runs the brokers of a host
node_supervisor.py        starts, watches, restarts and stops the processes of several nodes
"""

"""Runs nodes as processes of the local machine.

local_nodes_driver.py            starts and stops nodes, and waits until they are ready
forked_process_driver.py         child processes that are forked with all imported modules
resting_driver.py                program in place of a supervisor that has nothing to do
secure_cluster_driver.py         certificates, users and settings of `ottla up --secure`
certificate_authority_driver.py  a certificate authority for local clusters and tests
interrupts_driver.py             signal handlers: SIGTERM as Ctrl-C; signals that C code drops
private_files_driver.py          files that other users of the machine cannot read
"""

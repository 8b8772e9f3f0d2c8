"""Losses that a start found: kept on disk, logged and counted until the replica is whole again.

known_losses_driver.py   the losses of a broker's directories: start here
loss_file.py             the file of one directory
"""

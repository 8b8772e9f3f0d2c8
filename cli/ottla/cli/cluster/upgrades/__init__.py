"""Commands for upgrades: the levels of features, and the end of an upgrade.

features.py  `ottla cluster features`: show, raise and lower levels
upgrade.py   `ottla cluster upgrade`: releases of the nodes, and the levels that end an upgrade
"""

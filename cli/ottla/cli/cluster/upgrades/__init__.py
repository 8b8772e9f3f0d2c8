"""Commands for upgrades: the levels of features, and the finalization of an upgrade.

features.py  `ottla cluster features`: show, raise and lower levels
upgrade.py   `ottla cluster upgrade`: releases of the nodes, and the finalization of levels
"""

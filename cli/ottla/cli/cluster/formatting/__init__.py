"""`ottla storage format`: the directories of one node, and their first content.

node_directories.py       directories, voters and first records of a node, from its settings
initial_features.py       levels of a new cluster, from --feature and --release-version
"""

"""`ottla storage format`: the directories of one node, and their initial content.

node_directories.py       directories, voters and initial records of a node
initial_features.py       feature levels of a new cluster, from --feature and --release-version
"""

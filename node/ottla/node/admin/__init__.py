"""Requests of administrators, which brokers and controllers answer in the same way.

metadata_cache.py     the current image, and the requests that wait for a newer one
api_versions.py       ApiVersions
describe_cluster.py   refusal of DescribeCluster for nodes of the other role
describe_acls.py      DescribeAcls
describe_configs.py   DescribeConfigs: the request, and the settings that every node has
connection_bounds.py  limits of connections, and the publisher that applies them
log_levels.py         levels of this node's loggers

Changes, decided by the active controller
admin_api.py       every request that is forwarded: start here
forwarding.py      forwarding of one request to the active controller
alter_configs.py   IncrementalAlterConfigs: levels of own loggers; the rest is forwarded
merged_results.py  results that two nodes decided, in the order of a request
"""

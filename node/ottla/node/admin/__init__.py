"""Requests of administrators, which brokers and controllers answer in the same way.

metadata_cache.py     the current image, and the requests that wait for a newer one
api_versions.py       ApiVersions
describe_cluster.py   refusal of DescribeCluster for nodes of the other role
describe_acls.py      DescribeAcls
describe_configs.py   DescribeConfigs: the request, and the settings that every node has
connection_bounds.py  bounds of connections, and the publisher that applies them
log_levels.py         levels of this process's loggers

Changes, decided by the active controller
admin_api.py          every request that is forwarded: start here
forwarding.py         the forwarding itself
alter_configs.py      IncrementalAlterConfigs: loggers here, the rest by the controller
merged_results.py     results that two nodes decided, in the order of a request
"""

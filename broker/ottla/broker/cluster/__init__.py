"""Requests answered from metadata or by the controller, and the broker as a member of the cluster.

Metadata
cluster_apis.py               registers the handlers of this sub-package: start here
cluster_view.py               the cluster as one client may see it
metadata_api.py               Metadata
peer_connection_driver.py     connection of this broker to another one
auto_create.py                creates topics that clients request
describe_cluster.py           DescribeCluster
describe_topic_partitions.py  DescribeTopicPartitions
describe_client_quotas.py     DescribeClientQuotas
describe_scram_credentials.py  DescribeUserScramCredentials
metadata_changes_driver.py    DescribeMetadataChanges, an API of Ottla's own
describe_node.py              DescribeNode, an API of Ottla's own
token_apis.py                 handlers of delegation tokens

Changes, decided by the active controller
cleaner_api.py                DescribeCleaner and CleanLogs, APIs of Ottla's own
offload_api.py                OffloadLogs, an API of Ottla's own
quota_usage_api.py            DescribeQuotaUsage, an API of Ottla's own
store_refusals.py             tiered topics that the object store refuses
own_requests.py               the clients that may send requests of Ottla's own APIs

settings/                     settings of topics, brokers and groups: described, altered, effective
membership/                   registration, heartbeats and drain of this broker
"""

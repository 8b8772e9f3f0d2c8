"""Requests answered from metadata or by the controller, and the broker as a member of the cluster.

Metadata
cluster_apis.py               registers the handlers of this room: start here
metadata_cache.py             the current image, and the requests that wait for a newer one
cluster_view.py               the cluster as one client may see it
api_versions.py               ApiVersions
metadata_api.py               Metadata
auto_create.py                topics created because a client asked for them
describe_cluster.py           DescribeCluster
describe_topic_partitions.py  DescribeTopicPartitions
describe_acls.py              DescribeAcls
token_apis.py     delegation tokens, as clients ask for them
describe_scram_credentials.py  DescribeUserScramCredentials
describe_node.py              DescribeNode, our own

Changes, decided by the active controller
admin_api.py                  every request that is forwarded
forwarding.py                 the forwarding itself
refusals.py                   the form of a refusal of a whole request
drain_api.py                  DrainBroker, our own
cleaner_api.py                DescribeCleaner and CleanLogs, our own
quota_usage_api.py            DescribeQuotaUsage, our own
own_requests.py               which clients may send our own requests

Settings
configs_api.py                DescribeConfigs
config_resources.py           ListConfigResources
alter_loggers.py              IncrementalAlterConfigs: loggers here, the rest by the controller
alter_certificates_driver.py  tries out certificates of listeners before they are accepted
log_levels.py                 levels of this process's loggers
topic_settings.py             settings in force for a topic
dynamic_settings.py           broker settings that change at run time, and their listeners
settings_without_effect.py    warns of settings that do nothing yet

Membership
registration.py               what a broker registers with
lifecycle.py                  register, serve, ask to leave
attendance_driver.py          keeps the call open whose end tells the controller of a death
lifecycle_driver.py           sends the registrations and heartbeats that `lifecycle` decides
assignments_driver.py         reports to the controller in which directory a replica lies
"""

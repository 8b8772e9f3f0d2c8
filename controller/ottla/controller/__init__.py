"""The active controller, whose decisions are pure functions: `(image, request, now) ->
Decision(records, reply)`.

decision.py                 a decision: its records, reply and image; and its context
client_requests.py          the decision for each client request that brokers forward
replication/                topics, and the brokers that replicate and lead their partitions
membership/                 registrations of brokers and controllers, changes of the voters
settings/                   dynamic settings, client quotas, finalized features
security/                   ACLs, SCRAM credentials, delegation tokens
kafka/                      Kafka's protocol on the controller's listener, for administrators
front/                      the listener: gRPC of nodes and Kafka's protocol of clients at one port
broker_epochs.py            check of the broker epoch in a broker's request
settings_in_force.py        effective value of a topic's setting
mutation_quotas.py          quota of partitions created and deleted (KIP-599)
requester.py                the client that sent a forwarded request, and its permissions
producer_ids.py             blocks of producer ids
describe_quorum.py          response of DescribeQuorum
snapshot_requests.py        snapshots of the metadata that clients request
quorum_seam.py              interface to this node's member of the quorum
controller_driver.py        the queue, the speculative image, appends and commits
upkeep_driver.py            background tasks: fencing, elections, expired tokens, no-op records
registration_driver.py      the registration of this controller
attendance_driver.py        calls that brokers keep open, and the effect of a call's end
node_identities.py          authentication of nodes by their certificates
controller_metrics.py       metrics of the controller and of the cluster
own_telemetry_driver.py     exporters of the controller's metrics
local_forwarding_driver.py  requests that clients send to this controller itself
listening_driver.py         the listeners of the process
controller_service.py       the gRPC service
main_driver.py              one controller process
"""

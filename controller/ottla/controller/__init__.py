"""What the active controller decides: `(image, request, now) -> Decision(records, reply)`.

decision.py           records, reply and image; what a decision may know besides the image
client_requests.py    which decision answers which client request that a broker forwards
brokers.py            registration, heartbeats, fencing, controlled shutdown
sessions.py           which brokers are alive: soft, forgotten with the leadership
attendances.py        which brokers are gone for certain, before their sessions end
partition_change.py   one partition's next state: ISR, eligible replicas, leader
elections.py          batches of such changes when brokers leave, come, or somebody asks
partitions.py         AlterPartition and AssignReplicasToDirs
topics.py             topics made, grown, deleted
assignments.py        checked assignments, and the first state of a partition
reassignments.py      partitions that move to other brokers
placement.py          where new replicas go
configs.py            dynamic settings changed
settings_in_force.py  which value of a topic's setting holds
client_quotas.py      limits of users, client ids and addresses
acls.py               access control entries that come and go
requester.py          the client behind a forwarded request, and what it may do
scram_credentials.py  credentials of users, from which no password can be computed
tokens.py             delegation tokens made, renewed, ended
requester.py          the client behind a forwarded request
mutation_quotas.py    partitions that clients may create and delete, as the active one counts them
producer_ids.py       blocks of producer ids
update_features.py    finalised features changed
describe_quorum.py    DescribeQuorum's reply
rehearsal.py          a controller without quorum, clock or network, for tests
quorum_seam.py        what the controller needs of its member of the quorum
controller_driver.py  the queue, the speculative image, appends and commits
upkeep_driver.py      what it does unasked: fence, elect, give leaderships back, no-op records
attendance_driver.py  the calls that brokers keep open, and what is done when they are cut off
own_telemetry_driver.py  to whom it is told
controller_metrics.py what it tells of itself and of the cluster at /metrics
controller_service.py the gRPC service
main_driver.py        one controller process
"""

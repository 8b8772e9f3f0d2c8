"""Oracles over every API: what one request may cost, and that no request ends a process.

loop_hold.py       what one request may cost a broker: start here
loop_cost.py       how that is measured, and the bounds of it
kafka_requests.py  requests of every API and version, made from the schemas
kafka_values.py    what their fields hold: names that exist, names that do not, extremes
spikes.py          honest requests with one extreme value, or a few
hostile_frames.py  well-formed and spoilt frames of every API, as strangers send them
end_of_process.py  they are sent to real processes: none may end, no neighbour may be lost
grpc_requests.py   requests of every gRPC method of a controller
grpc_target.py     the controller that gets them, and what is true of its cluster
grpc_loop_hold.py  what one of them costs the controller's loop
grpc_end_of_process.py  and that none of them ends one
tls_records.py     TLS records that no library sends, and floods of them
tls_hold.py        what a flood of TLS records costs a listener of any kind
tls_end_of_process.py   and that no record ends a process, or another's connection
acl_cases.py       requests of every API that needs an operation, by users with and without it
"""

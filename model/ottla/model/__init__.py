"""Vocabulary that every package shares; imports nothing of ours.

ids.py       ids, offsets and epochs as distinct types; topic and partition names
values.py    frozen values, made in less time than Python's dataclasses
errors.py    Kafka's error codes as one table, and the families of exceptions
scram.py     SCRAM's keys and messages
delegation_tokens.py  who a delegation token is for, and what proves it
oauthbearer.py  OAUTHBEARER's messages, and what a token is
jwt_claims.py   what a broker demands of a token's claims
acls.py      access control entries and their codes
acl_hosts.py  from which hosts an access control entry holds
authorizer.py  who decides what a principal may do
background_driver.py  restarts a background task that met a bug
garbage.py   the garbage collector, switched off for a while
log_limiter.py  keeps strangers from filling the log
explanations.py  the messages of one answer, bounded
unexpected_errors.py  counts and logs what nobody foresaw, at an owner's edge
quota_limits.py  which of eight levels a client's quota is set at
rates.py     a rate over sampled windows, and how long it takes to return to a bound
token_bucket.py  credit that fills evenly and is spent in bursts
limits.py    the bounds of the house and the relations between them, asserted
seams.py     Clock, Rng and Transport: how time, chance and other machines come in
buggify.py   rare choices that only the deterministic world takes
run_now.py   runs a coroutine that waits for nothing, without a loop
version.py       the version of all packages
unicode_text.py  texts that UTF-8 cannot encode
visible_text.py  texts of strangers made safe to look at
tls/         certificates, and what is made of them for a connection
settings/    every Kafka setting, declared once
"""

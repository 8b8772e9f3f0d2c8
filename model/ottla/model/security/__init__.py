"""Basic types of authentication and authorization.

acls.py               ACL entries and Kafka's codes for them
acl_hosts.py          hosts of an ACL entry: all, one address, or a range
authorizer.py         the authorizer interface
scram.py              SCRAM: keys, messages, and the client's side of an exchange
oauthbearer.py        OAUTHBEARER: messages and tokens
jwt_claims.py         checks of a token's claims
delegation_tokens.py  delegation tokens: owner, renewers, lifetime, HMAC
"""

"""Authentication of clients. No other request of a connection is served before it.

mechanism.py          the interface of a SASL mechanism and of its exchanges
plain.py              PLAIN, with the users in the broker's own file
scram_server.py       SCRAM-SHA-256 and -512, with the credentials of the metadata log
oauth_server.py       OAUTHBEARER, with signed tokens
jwks.py               the public keys that verify tokens, and the verification of signatures
jwks_driver.py        reads the public keys from their URLs
token_credentials.py  SCRAM with a delegation token in place of a user
revocations.py        ends sessions whose user or token was deleted
sasl_session.py       the authentication of one connection, as a state machine: start here
authenticators.py     the mechanisms and rules of each listener, from the settings
illegal_state.py      refuses SaslHandshake and SaslAuthenticate where no authentication is due
"""

"""Authentication: who is at the other end of a connection, before it is served.

mechanism.py    what a SASL mechanism is to the rest, and how an exchange ends
plain.py        PLAIN, with the users of the broker's own file
scram_server.py SCRAM-SHA-256 and -512, with the credentials of the metadata log
oauth_server.py OAUTHBEARER, with signed tokens
jwks.py         the keys that sign tokens, and the look at a signature
jwks_driver.py  has these keys read from where they are
token_credentials.py  SCRAM with a delegation token in place of a user
revocations.py  sessions whose user or token is deleted
sasl_session.py the authentication of one connection, as states: start here
authenticators.py  which listener asks for what, from the settings
illegal_state.py   SaslHandshake and SaslAuthenticate where nothing is to be authenticated
"""

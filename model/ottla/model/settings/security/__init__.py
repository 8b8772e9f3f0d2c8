"""Settings of encryption, authentication and authorization.

security_keys.py      support or refusal of each of Kafka's security keys of a node
authorizer.py         the authorizer and its super users
sasl.py               SASL: mechanisms of each listener, and the login of a broker
jaas.py               `sasl.jaas.config` as in Kafka's own files
oauth.py              OAUTHBEARER: accepted tokens, and the source of a client's token
delegation_tokens.py  delegation tokens: the secret key and the lifetimes
tls.py                TLS of a listener: certificates, trust, protocol versions, ciphers
tls_ciphers.py        cipher suites, by Java's names and OpenSSL's
dynamic_tls.py        certificates and trust that can change while a broker runs
listener_settings.py  interface of the settings that secure listeners for clients
node_tls.py           TLS between nodes
client_security.py    security protocol and login of a client
client_tls.py         TLS of a client
"""

"""Encrypted connections: a channel with OpenSSL, its handshakes, and the certificates it shows.

encrypted_channel_driver.py  one encrypted socket and its connection
handshakes.py                whose handshake goes on, for how long, and until when
served_tls_driver.py         an encrypted listener's certificate, and the users of its clients
certificates_driver.py       the certificates of all listeners, watched
"""

"""Encrypted connections: channels with OpenSSL, their handshakes, and the listeners' certificates.

encrypted_channel_driver.py  one encrypted socket and its connection
handshakes.py                schedule, time limits and share of the event loop for handshakes
served_tls_driver.py         an encrypted listener's certificate, and the users of its clients
certificates_driver.py       the certificates of all listeners, reloaded when they change
"""

"""Certificates, and the TLS contexts and streams that use them.

certificate.py         contents of an X.509 certificate: subject, names, validity
principal_mapping.py   the user that a certificate's distinguished name maps to
changed_files_driver.py  detection of changed files
context_driver.py      reads certificates and keys, and creates the contexts of servers and clients
session_driver.py      the server's end of one connection in memory, bounded in records and time
stream_driver.py       the server's end of one connection as a trio stream
"""

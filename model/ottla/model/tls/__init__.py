"""Certificates: whom they name, and what is made of them for a connection that is encrypted.

certificate.py         what an X.509 certificate says: subject, names, and when it holds
principal_mapping.py   the user that a certificate's distinguished name stands for
changed_files_driver.py  notices new files
context_driver.py      reads certificates and keys, and makes the contexts of servers and clients
session_driver.py      the server's end of one connection over memory, bounded by records and time
stream_driver.py       the same as a trio stream
"""

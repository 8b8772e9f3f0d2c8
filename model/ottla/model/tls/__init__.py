"""Certificates: whom they name, and what is made of them for a connection that is encrypted.

principal_mapping.py   the user that a certificate's distinguished name stands for
"""

"""Certificates, for clusters that ask who everyone is.

certificate_authority.py  issues certificates under a root of one's own
"""

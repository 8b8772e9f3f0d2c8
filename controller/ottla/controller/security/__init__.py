"""Changes of ACLs, SCRAM credentials and delegation tokens.

acls.py               CreateAcls and DeleteAcls
scram_credentials.py  SCRAM credentials of users; passwords cannot be computed from them
tokens.py             delegation tokens: creation, renewal, expiry
"""

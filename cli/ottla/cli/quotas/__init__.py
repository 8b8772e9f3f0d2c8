"""Commands on quotas.

quota.py        `ottla quota`: list, set, delete, explain, export, apply
quota_files.py  limits as JSON, and what it takes to apply them (pure)
"""

"""Commands that show and change quotas.

quota.py        `ottla quota`: list, set, delete, explain, usage, export, apply
quota_files.py  limits as JSON, and the changes that apply them (pure)
"""

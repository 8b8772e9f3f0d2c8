"""Facts about the records of topics.

retention_driver.py  retention of topics, and the newest timestamps of their records
tier_driver.py       tiered topics, and how far they are copied
"""

"""What holds for every test: speed is measured in `bench/` and asserted nowhere.

So hypothesis neither fails a test for a slow machine nor for data that took long to make.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

"""kafka-python reads its schemas by a deprecated call, and in our tests warnings are errors."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401 - imported once here, so that the warning is spent

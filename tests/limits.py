"""The one time limit of the tests."""

AN_HOUR = 3600  # seconds: a guard against hanging and no measurement, so that a busy machine turns no test red

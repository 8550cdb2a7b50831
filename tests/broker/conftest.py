"""Property tests run beside other work on small machines: how long an example takes says nothing about the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("broker", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("broker")

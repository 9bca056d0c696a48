"""Settings all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No deadlines: a loaded machine is slow, not wrong.
settings.register_profile("chord", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("chord")

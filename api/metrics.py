"""Owns what this process counts, on a registry of its own, and how it is named (`horarium_…`)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0)


class Metrics:
    """The process's metrics. Labels are bounded: routes are templates, tenants are no label."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "horarium_api_requests",
            "HTTP requests by route template and status",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "horarium_api_request_duration_seconds",
            "Time to an answer, claims (which wait on purpose) left out",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.decision_seconds = Histogram(
            "horarium_api_decision_duration_seconds",
            "From sending commands to having their partitions' answers",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.commands_waiting = Gauge(
            "horarium_api_commands_waiting",
            "Commands sent whose partition has not answered yet",
            registry=self.registry,
        )
        self.unknown = Counter(
            "horarium_api_outcomes_unknown",
            "Commands without an answer in time",
            registry=self.registry,
        )
        self.grants = Counter(
            "horarium_api_grants",
            "Executions granted to workers of this process, by what became of them",
            ("result",),
            registry=self.registry,
        )
        self.claims_waiting = Gauge(
            "horarium_api_claims_waiting", "Claims that wait for work here", registry=self.registry
        )
        self.outcomes = Counter(
            "horarium_api_reports",
            "Heartbeats and outcomes that workers sent, by kind",
            ("kind",),
            registry=self.registry,
        )

"""Engines that count the events applied to them."""

from __future__ import annotations

from schemas import codec
from schemas.entities import Tenant
from streams.core.engine import Engine
from streams.store.kv import KeyValue


class Applied:
    """Makes engines that count what is applied to them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, number: int, store: KeyValue) -> Engine:
        applied = self

        class Counting(Engine):
            def apply(self, key: str, value: bytes | None) -> None:
                applied.count += 1
                super().apply(key, value)

        return Counting(number, store, codec, _Here())


class _Here:
    def partition_of(self, tenant: str, job_id: str) -> int:
        return 0

    def partitions_of(self, tenant: str) -> list[int]:
        return [0]

    def settings_of(self, tenant: str) -> Tenant:
        return Tenant(tenant=tenant)

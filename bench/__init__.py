"""Benchmarks: one command each, one JSON object a line (docs/benchmarks.md says how to read them).

Reading order: `report` (what a result is), `partition` and `core` (the engine alone), then `wire`, `site`,
`worker`, `herd` and `steady` (the whole server under load), `processors`, `service` and `processor` (by Kafka
alone, and what builds on it), `peers`, and `compare`, `plots` and `sizing`, which read what was saved.
"""

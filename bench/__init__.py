"""Benchmarks: one command each, one JSON object a line (docs/benchmarks.md says how to read them).

Reading order: `report` (what a result is), `partition` and `core` (the engine alone), then `wire`, `site`,
`worker` and `measured` (the whole server under load), `herd`, `steady`, and `compare`.
"""

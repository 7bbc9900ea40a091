"""Other schedulers under the load of `bench.herd` and `bench.steady`, on the same machine in the same run.

Each peer has a driver in its own language and folder that registers jobs, runs them as no-ops and prints
what it saw; `driver` builds and starts it on a fresh PostgreSQL, `__main__` compares.
"""

"""`make mutants`: each deliberate break of the product, and how many seeds the simulation took to find it."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.mutants.hunt import ALL, SEEDS_MAX, hunt


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="some of them")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many to try at most")
    asked = parser.parse_args()
    survivors = 0
    for catch in hunt(asked.names or list(ALL), asked.seeds):
        survivors += not catch.seeds
        took = f"{catch.seeds:>3} seeds" if catch.seeds else f"NOT FOUND in {asked.seeds}"
        sys.stdout.write(f"{catch.name:<28} {took}  {catch.cpu_sec:6.1f} s  {catch.by[:150]}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(asked.names or ALL)} mutants, {survivors} not found\n")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())

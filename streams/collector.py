"""Python's cyclic garbage collector, set for processes that keep much and make few cycles.

By default it looks at every container in memory again and again as they grow in number. Records are no
concern of its (`schemas.entities`); what is left are lists, dicts and keys of batches, which live until the
batch is done.
"""

import gc

THRESHOLDS = (50_000, 20, 50)
"""A batch makes tens of thousands of objects that all live until its end: with the default thresholds the
collector walks them again and again, for a third of the time of a registration (measured)."""


def settle() -> None:
    """Once a process is set up: what stands now stays, and is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)

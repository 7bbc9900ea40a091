"""A processor that ends itself at a commit step (`python -m tests.integration.runtime_entry`).

As `streams.runtime.main`, and besides: once the file named by CRASH_WHEN exists, the process kills itself
with SIGKILL at the step named by CRASH_AT.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from streams.config import ProcessorSettings
from streams.runtime.checkpoint import Step
from streams.runtime.main import Stop, run
from streams.runtime.telemetry import log_as_json


def main() -> None:
    step_wanted = Step[os.environ["CRASH_AT"]]
    when = Path(os.environ["CRASH_WHEN"])

    def on_step(step: Step) -> None:
        if step is step_wanted and when.exists():
            os.kill(os.getpid(), signal.SIGKILL)

    stop = Stop()
    settings = ProcessorSettings.load()
    log_as_json(settings.instance, settings.log_level)
    run(settings, stop, on_step)


if __name__ == "__main__":
    main()

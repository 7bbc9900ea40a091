"""Child processes that end with us: start, bounded stop, kill.

A child sits in a session of its own, so that Ctrl-C in a terminal reaches only the parent, which then
stops its children in order. Should the parent be killed, Linux kills the child
(PR_SET_PDEATHSIG). That signal follows the *thread* that started the child, therefore all children
are started from one thread that lives as long as the process. On other systems a killed parent
leaves its children behind.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Runs in the child before the program: becomes the wanted user (that would clear the wish below, so it
# comes first), asks for the signal, then checks that the parent had not died before that. A preexec_fn
# would do the same, but is not safe in a process with threads.
_TETHER = """\
import ctypes, os, pwd, signal, sys
libc = ctypes.CDLL(None)
parent, user = int(sys.argv[1]), sys.argv[2]
if user:
    account = pwd.getpwnam(user)
    os.initgroups(user, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
if sys.platform == "linux":
    libc.prctl(1, signal.SIGKILL)
if os.getppid() != parent:
    os._exit(1)
os.execvp(sys.argv[3], sys.argv[3:])
"""

_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="children")


def start(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: str = "",
) -> subprocess.Popen[bytes]:
    """Starts a program whose output is appended to `log`; its pid is the program's own."""
    log.parent.mkdir(parents=True, exist_ok=True)
    tether = [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), user]
    with log.open("ab") as output:

        def begin() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [*tether, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=cwd,
                start_new_session=True,
            )

        return _starter.submit(begin).result()


def stop(process: subprocess.Popen[bytes], grace_sec: float, ask: int = signal.SIGTERM) -> bool:
    """Asks the process to end and kills it after `grace_sec`; True if it ended by itself."""
    return stop_all([process], grace_sec, ask)


def stop_all(
    processes: Sequence[subprocess.Popen[bytes]], grace_sec: float, ask: int = signal.SIGTERM
) -> bool:
    """Asks all to end, waits for them together, kills the rest; True if there was none to kill."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(ask)
            # One that was stopped (SIGSTOP) by a chaos test would not see the request.
            process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + grace_sec
    willing = True
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            kill(process)
            willing = False
    return willing


def kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the process at once, as a crash would, and collects it."""
    process.kill()
    process.wait()


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error message."""
    if not log.exists():
        return f"(no log at {log})"
    text = log.read_text(errors="replace").splitlines()
    return "\n".join(text[-lines:])

"""What the RocksDB store promises beyond the common suite, with real files, processes and signals.

Owns: crashes, the folder's lock, tombstones, damaged files. May not know: what the state means.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

import pytest

from streams.store import rocks
from streams.store.kv import Batch, KeyValue
from streams.store.rocks import RocksFolder, RocksStore, StateFolderBusyError
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from pathlib import Path
from streams.store.kv import Batch
from streams.store.rocks import RocksFolder

store = RocksFolder(Path(sys.argv[1]), "writer").open(0)
round = int.from_bytes(store.get(b"s000") or b"", "big")
while True:
    round += 1
    value = round.to_bytes(8, "big") + b"x" * 1000
    puts = {family + b"%03d" % key: value[:8] for family in (b"s", b"t", b"q", b"b") for key in range(100)}
    puts[b"spad"] = value
    puts[b"t-%d" % round] = b""
    store.write(Batch(puts, [(b"t-", b"t.")]))
    print(round, flush=True)
"""

HOLDER = """
import sys
from pathlib import Path
from streams.store.kv import Batch
from streams.store.rocks import RocksFolder, StateFolderBusyError

try:
    folder = RocksFolder(Path(sys.argv[1]), sys.argv[2], wait_s=float(sys.argv[3]))
except StateFolderBusyError as error:
    sys.exit(str(error))
store = folder.open(0)
print("holds", flush=True)
for line in sys.stdin:
    store.write(Batch({b"s1": line.encode()}))
    print((store.get(b"s1") or b"").decode(), end="", flush=True)
folder.close()
"""


@contextmanager
def child(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
    return line_of(process)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RocksFolder]:
    folder = RocksFolder(tmp_path / "state", "test")
    yield folder
    folder.close()


def test_a_killed_process_leaves_whole_batches_and_all_it_was_told_of(tmp_path: Path) -> None:
    for rounds in (1, 7, 40, 90, 200):
        with child(WRITER, str(tmp_path)) as writer:
            for _ in range(rounds):
                reported = int(line_of(writer))
            writer.send_signal(signal.SIGKILL)
            assert writer.stdout is not None
            reported = max([reported, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        folder = RocksFolder(tmp_path, "test", wait_s=0)  # the lock died with its holder
        store = folder.open(0)
        written = {
            store.get(family + b"%03d" % key) for family in (b"s", b"t", b"q", b"b") for key in range(100)
        }
        pad = store.get(b"spad") or b""
        assert written == {pad[:8]}
        last = int.from_bytes(pad[:8], "big")
        assert last >= reported
        assert [key for key, _ in store.scan(b"t-", b"t.")] == [b"t-%d" % last]
        folder.close()


def contents(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_a_second_process_names_folder_and_holder_and_touches_nothing(tmp_path: Path) -> None:
    """STR-023."""
    with child(HOLDER, str(tmp_path), "processor-a", "10") as first:
        assert line_of(first) == "holds"
        assert say(first, "one") == "one"
        before = contents(tmp_path)
        with child(HOLDER, str(tmp_path), "processor-b", "0.2") as second:
            out, error = second.communicate(timeout=30)
        assert second.returncode == 1
        assert out == ""
        assert str(tmp_path) in error
        assert f"processor-a (pid {first.pid})" in error
        assert contents(tmp_path) == before
        with pytest.raises(StateFolderBusyError, match="processor-a"):
            RocksFolder(tmp_path, "this one", wait_s=0)
        assert say(first, "two") == "two"


def test_a_waiting_process_gets_the_folder_when_it_is_free(tmp_path: Path) -> None:
    with child(HOLDER, str(tmp_path), "old", "0") as old:
        assert line_of(old) == "holds"
        assert say(old, "kept") == "kept"
        with child(HOLDER, str(tmp_path), "new", "30") as new:
            assert old.stdin is not None
            old.stdin.close()
            assert line_of(new) == "holds"
            assert old.wait(timeout=30) == 0
            assert say(new, "mine") == "mine"


def test_a_closed_folder_is_free(tmp_path: Path) -> None:
    folder = RocksFolder(tmp_path, "first", wait_s=0)
    folder.open(0)
    folder.close()
    folder.close()
    RocksFolder(tmp_path, "second", wait_s=0).close()


def step_ms(store: KeyValue, start: bytes, end: bytes, count: int = 10) -> float:
    """The median over some scans, since this machine does other things too."""
    times = []
    for _ in range(21):
        begin = time.perf_counter()
        assert len(list(islice(store.scan(start, end), count))) == count
        times.append((time.perf_counter() - begin) * 1000)
    return median(times)


def test_a_scan_from_a_position_does_not_pay_for_tombstones_before_it(folder: RocksFolder) -> None:
    """STR-007, time index: due entries deleted one by one, the scan begins at the last one handled."""
    store = folder.open(0)
    store.write(Batch({b"t%07d" % number: b"" for number in range(200_020)}))
    fresh = step_ms(store, b"t", b"u")
    store.write(Batch({b"t%07d" % number: None for number in range(200_000)}))
    assert step_ms(store, b"t%07d" % 200_000, b"u") < max(5 * fresh, 2)
    store.write(Batch(range_deletes=[(b"t", b"t%07d" % 200_000)]))
    assert step_ms(store, b"t", b"u") < max(5 * fresh, 2)


def test_the_head_of_a_queue_stays_near_while_it_is_taken_from(folder: RocksFolder) -> None:
    """STR-007, queue index: the scan begins at the queue's start, before all tombstones."""
    store = folder.open(0)
    store.write(Batch({b"q%07d" % number: b"" for number in range(100_020)}))
    fresh = step_ms(store, b"q", b"r")
    for low in range(0, 100_000, 1_000):
        assert next(store.scan(b"q", b"r"))[0] == b"q%07d" % low
        store.write(Batch({b"q%07d" % number: None for number in range(low, low + 1_000)}))
    assert next(store.scan(b"q", b"r"))[0] == b"q%07d" % 100_000
    assert step_ms(store, b"q", b"r") < max(5 * fresh, 2)


def test_a_scan_ends_before_the_tombstones_behind_its_range(folder: RocksFolder) -> None:
    store = folder.open(0)
    store.write(Batch({b"ta%02d" % number: b"" for number in range(10)}))
    fresh = step_ms(store, b"ta", b"tb")
    store.write(Batch({b"tb%07d" % number: b"" for number in range(200_000)}))
    store.write(Batch({b"tb%07d" % number: None for number in range(200_000)}))
    assert step_ms(store, b"ta", b"tb") < max(5 * fresh, 2)


def test_forgotten_queue_heads_are_found_again(folder: RocksFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks, "HEADS", 3)
    store = folder.open(0)
    queues = [b"q%d" % number for number in range(8)]
    store.write(Batch({queue + b"%d" % number: b"" for queue in queues for number in range(5)}))
    for number in range(5):
        for queue in queues:
            head = next(store.scan(queue, queue + b":"))[0]
            assert head == queue + b"%d" % number
            store.write(Batch({head: None}))
    store.write(Batch({queue + b"3": b"" for queue in queues}))
    assert [next(store.scan(queue, queue + b":"))[0] for queue in queues] == [
        queue + b"3" for queue in queues
    ]


def test_a_damaged_file_is_an_error_and_not_a_shorter_list(folder: RocksFolder, tmp_path: Path) -> None:
    store = folder.open(0)
    store.write(Batch({b"q%05d" % number: os.urandom(100) for number in range(5_000)}))
    store.close()
    folder.open(0).close()  # opening moves what the log holds into files
    largest = max((tmp_path / "state" / "p000").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)
    store = folder.open(0)
    with pytest.raises(Exception, match="Corruption"):
        list(store.scan(b"q", b"r"))
    with pytest.raises(Exception, match="Corruption"):
        store.get_many([b"q%05d" % number for number in range(5_000)])


def reads_of_this_process() -> int:
    """System calls that read."""
    return int(Path("/proc/self/io").read_text().split("syscr: ")[1].split()[0])


def one_large_file(number: int) -> bytes:
    """Written in four parts that compaction makes one of."""
    return b"e%09d" % number


def many_files(number: int) -> bytes:
    """Parts lie apart, so that compaction moves their files and does not make one of them."""
    return b"e%02d-%09d" % (number % PARTS[many_files], number)


PARTS: dict[Callable[[int], bytes], int] = {one_large_file: 4, many_files: 40}


@pytest.mark.parametrize("key_of", PARTS)
def test_what_was_just_read_is_not_read_again(
    tmp_path: Path, key_of: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large or many the files are: of both, each `get` cost a hundredfold once."""
    monkeypatch.setattr(rocks, "STATE_BUFFER_BYTES", 64 << 20)
    folder = RocksFolder(tmp_path / "state", "test", cache_bytes=4 << 20)
    store = folder.open(0)
    parts = PARTS[key_of]
    for part in range(parts):
        keys = (key_of(number) for number in range(part, 600_000, parts))
        store.write(Batch(dict.fromkeys(keys, b"x" * 20)))
        store.flush()
    if key_of is one_large_file:
        wait_until(lambda: len(list(tmp_path.rglob("*.sst"))) == 1, 60)
    wanted = [key_of(number * 2_999) for number in range(200)]
    wanted += [key + b"?" for key in wanted]
    for key in wanted * 2:
        store.get(key)
    before = reads_of_this_process()
    for key in wanted * 5:
        store.get(key)
    assert reads_of_this_process() - before < len(wanted)
    folder.close()


def test_half_wiped_partitions_are_swept(tmp_path: Path) -> None:
    leftover = tmp_path / "p003.wiped"
    leftover.mkdir()
    (leftover / "000004.log").write_bytes(b"old")
    folder = RocksFolder(tmp_path, "test")
    assert not leftover.exists()
    folder.close()


def test_64_partitions_share_their_memory(folder: RocksFolder) -> None:
    def resident_mib() -> float:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    before = resident_mib()
    stores: list[RocksStore] = [folder.open(partition) for partition in range(64)]
    assert resident_mib() - before < 100
    for store in stores:
        store.write(Batch({b"s%06d" % number: b"x" * 200 for number in range(1_000)}))
    assert resident_mib() - before < 200

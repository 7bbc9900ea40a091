"""The whole cluster of one seed: processors, API nodes, workers and callers, and the faults between them.

Two phases. Safety: everything that the seed's hazards name goes wrong. Liveness: faults stop, callers ask for
nothing new, schedules are ended, and all that is left must drain in bounded time. Owns who is there and the
order of the phases; what was promised is checked elsewhere (`checking`).
"""

from __future__ import annotations

from collections.abc import Callable

from schemas import codec
from schemas.entities import Tenant
from schemas.events import TenantConfigured
from schemas.ids import SHARED
from schemas.topics import Topics, catalogue
from streams.ambient import Chance
from streams.core.instants import format_instant
from streams.core.lifecycle import FINAL
from streams.runtime import starting
from streams.transport.log import Outgoing
from streams.transport.memory import MemoryLog
from streams.transport.memory_faults import CommitFault
from tests.simulation import hazards as hazards_of
from tests.simulation import zone_data
from tests.simulation.agenda import Agenda
from tests.simulation.bucket import Bucket
from tests.simulation.checking.replay import Replicas
from tests.simulation.checking.zones import check_zones
from tests.simulation.customers import ORACLE, Customer
from tests.simulation.hazards import NONE, Counts, Hazards
from tests.simulation.history import History
from tests.simulation.jobs import SHARED_POOL
from tests.simulation.journal import Journal
from tests.simulation.network import LATE_MS, Network
from tests.simulation.nodes import Node
from tests.simulation.operators import Operator
from tests.simulation.servers import Server, Surroundings
from tests.simulation.workers import Worker

NAMESPACE = "sim"
STARTS_MS = (
    1_777_593_600_000,  # 2026-05-01T00:00:00Z
    1_774_745_700_000,  # 2026-03-29T00:55:00Z, five minutes before Berlin's gap
    1_792_889_700_000,  # 2026-10-25T00:55:00Z, five minutes before its fold
    1_777_600_680_000,  # 2026-05-01T01:58:00Z, jobs of the second hour begin
)
SAFETY_SEC = (120, 240)
CALM_SEC = 40
"""Between the end of the faults and the end of the schedules: everything runs undisturbed."""
DRAIN_SEC = 1_200
"""Longer than the longest wait of a run: a breaker that opened again and again, then redeliveries, backoffs,
time-outs and snoozes in line."""
OUTAGES_SEC = ((5, 20), (20, 90), (90, 400))
SNAPSHOTS_SEC = (0, 3, 8, 20)
NEAR_EVENTS = (0, 0, 0, 20_000)
"""A local store so near to the log's end is not replaced by a snapshot; 20,000 in production."""
JOBS_MAX = 14
LOOK_MS = 7_000
Ledger = Callable[[int, str, str], None]


class World:
    """Made from its seed alone. `violations`: what must never happen and did."""

    def __init__(self, seed: int, ledger: Ledger | None = None, hazards: Hazards | None = None) -> None:
        zone_data.use(zone_data.INSTALLED)
        self.seed = seed
        self.chance = chance = Chance(seed)
        self.counts = Counts()
        self.violations: list[str] = []
        self.hazards = hazards or hazards_of.draw(chance)
        self.started_ms = chance.choice(STARTS_MS)
        self.agenda = Agenda(self.started_ms)
        self.topics = Topics(NAMESPACE)
        self.partitions = chance.choice((1, 2, 3, 4))
        self.log = MemoryLog(lambda: self.agenda.now_ms)
        self.log.create_topics(catalogue(NAMESPACE, self.partitions, 1))
        self._ledger = ledger
        self.bucket = Bucket(chance, self.counts, lambda: self.around.hazards.p_bucket_fails)
        starting.NEAR_EVENTS = chance.choice(NEAR_EVENTS)
        self.around = Surroundings(
            self.agenda,
            self.log,
            self.topics,
            self.partitions,
            chance,
            self.counts,
            NONE,
            self.tell,
            self.violations.append,
            self.bucket,
            chance.choice(SNAPSHOTS_SEC),
        )
        self.history = History(self.log, self.topics, self.partitions)
        self.replicas = Replicas(self.history)
        self.journal = Journal()
        self.oracle = ORACLE
        self.network = Network(self.agenda, self.log, self.topics, chance, self.counts)
        self.shards = {f"t{n}": chance.choice((1, 1, 2)) for n in range(chance.randint(2, 3))}
        self._configure()
        self.servers = [Server(self.around, f"p{n}") for n in range(chance.randint(2, 3))]
        self.nodes = [
            Node(self.around, self.network, self.journal, self.shards, f"api{n}", n) for n in range(2)
        ]
        self.workers = self._workers()
        self.customers = [
            Customer(self.around, self.network, self.nodes, self.journal, self.history, tenant, JOBS_MAX)
            for tenant in self.shards
        ]
        self.operator = Operator(self.around, self.network, self.nodes, self.shards)
        self.network.wake_owner = self._wake_owner
        self.network.wake_asker = self._wake_asker
        self.log.faults.on_commit = self._on_commit

    def tell(self, who: str, what: str) -> None:
        """A line of the ledger, if one is kept."""
        if self._ledger is not None:
            self._ledger(self.agenda.now_ms - self.started_ms, who, what)

    # -- who is there

    def _configure(self) -> None:
        for tenant, shards in self.shards.items():
            settings = Tenant(tenant=tenant, shards=shards, weight=self.chance.choice((1, 2, 5)))
            event = TenantConfigured(
                at_ms=self.agenda.now_ms, actor="operator", cause="", configured=settings
            )
            value = codec.encode(event)
            self.log.plain_writer().send(Outgoing(self.topics.tenants, 0, tenant.encode(), value))

    def _workers(self) -> list[Worker]:
        made = []
        pools = [(tenant, pool) for tenant in self.shards for pool in ("default", "extra")]
        for owner, pool in (*pools, (SHARED, SHARED_POOL)):
            for n in range(self.chance.randint(1, 2)):
                worker_id, places = f"{owner}-{pool[-3:]}-{n}/0", self.chance.randint(1, 8)
                made.append(Worker(self.around, self.network, self.nodes, owner, pool, worker_id, places))
        return made

    def _wake_owner(self, partition: int) -> None:
        member = self.log.cluster.group(self.around.group).owners.get(partition)
        for server in self.servers:
            if server.member == member:
                server.wake(self.network.noticed_ms())

    def _wake_asker(self, reply_partition: int) -> None:
        self.nodes[reply_partition].wake(self.network.noticed_ms())

    # -- what goes wrong

    def _on_commit(self, transactional_id: str) -> CommitFault | None:
        drawn, hazards = self.chance.random(), self.around.hazards
        if drawn < hazards.p_commit_aborted:
            self.counts["commit aborted"] += 1
            return CommitFault.ABORTED
        if drawn < hazards.p_commit_aborted + hazards.p_commit_unknown:
            fault = self.chance.choice(list(CommitFault)[1:])
            self.counts[f"commit {fault.value}"] += 1
            return fault
        return None

    def _now_and_then(self, every_sec: float, what: Callable[[], None]) -> None:
        """Again and again at random, as long as faults go on."""
        if not every_sec:
            return

        def happen() -> None:
            if self.around.hazards is self.hazards:
                what()
                self._now_and_then(every_sec, what)

        self.agenda.after(round(self.chance.expovariate(1 / every_sec) * 1000), happen)

    def _begin_faults(self) -> None:
        hazards, some = self.hazards, self._some_server
        self.around.hazards = self.network.hazards = hazards
        for every_sec, what in (
            (hazards.every_crash_sec, lambda: self._crash(some())),
            (hazards.every_freeze_sec, lambda: some().freeze()),
            (hazards.every_rebalance_sec, self._rebalance),
            (hazards.every_eviction_sec, lambda: some().lose_session()),
            (hazards.every_deploy_sec, lambda: some().stop()),
            (hazards.every_clock_step_sec, lambda: some().step_clock()),
            (hazards.every_outage_sec, self._outage),
            (hazards.every_compaction_sec, self.compact),
            (hazards.every_late_markers_sec, self._late_markers),
            (hazards.every_node_crash_sec, self._crash_node),
            (hazards.every_settings_sec, self.operator.change),
            (hazards.every_herd_sec, lambda: self.chance.choice(self.customers).herd()),
            (hazards.every_rush_sec, self._rush),
            (15.0 if hazards.p_disk_old else 0.0, lambda: some().back_up()),
            (hazards.every_bucket_damage_sec, self._damage_bucket),
            (hazards.every_bucket_damage_sec, self.bucket.remember),
        ):
            self._now_and_then(every_sec, what)
        if hazards.newer_zone_data_sec:
            self.agenda.after(hazards.newer_zone_data_sec * 1000, self._release_zone_data)

    def _release_zone_data(self) -> None:
        self.counts["newer zone data"] += 1
        self.tell("world", "processes come with newer time zone data from now on")
        self.around.zone_data = zone_data.NEWER

    def _some_server(self) -> Server:
        return self.chance.choice(self.servers)

    def _crash(self, server: Server) -> None:
        self.counts["crash between steps"] += 1
        server.kill("killed")

    def _crash_node(self) -> None:
        self.counts["API node crashed"] += 1
        self.chance.choice(self.nodes).crash()

    def _rebalance(self) -> None:
        """The group moves partitions about at random."""
        group = self.log.rebalance(self.around.group, self.topics.commands)
        if group.members:
            self.counts["rebalance"] += 1
            group.targets = {n: self.chance.choice(group.members) for n in range(self.partitions)}
            self.tell("group", f"rebalances to {group.targets}")

    def _rush(self) -> None:
        """More than the workers of the shared pool can take, of all tenants at once."""
        self.counts["rush"] += 1
        at = format_instant((self.agenda.now_ms // 1000 + self.chance.randint(3, 10)) * 1000)
        for customer in self.customers:
            customer.rush(at)

    def _outage(self) -> None:
        """All processors at once, perhaps for long."""
        sec = self.chance.randint(*self.chance.choice(OUTAGES_SEC))
        self.counts["outage"] += 1
        self.tell("world", f"outage of {sec} s")
        for server in self.servers:
            server.kept_down = True
            server.kill("outage")

        def over() -> None:
            for server in self.servers:
                server.kept_down = False
                server.start()

        self.agenda.after(sec * 1000, over)

    def compact(self) -> None:
        """The broker's cleaner goes over some partition."""
        self.counts["compaction"] += 1
        self.history.read()
        self.log.compact(self.topics.events, self.chance.randrange(self.partitions))

    def _damage_bucket(self) -> None:
        what = self.bucket.damage()
        if what:
            self.tell("bucket", what)

    def _late_markers(self) -> None:
        self.counts["markers late"] += 1
        self.log.faults.late_markers = True

        def written() -> None:
            self.log.faults.late_markers = False
            self.log.write_markers()

        late_ms = self.chance.randint(50, 3_000)
        self.agenda.after(late_ms, written)
        if self.chance.random() < 0.5:  # and partitions are taken over meanwhile
            self.agenda.after(self.chance.randint(1, late_ms), self._rebalance)

    # -- the phases

    def run(self) -> None:
        """Both phases; afterwards the log, the history and the journal tell what happened."""
        for server in self.servers:
            server.start()
        for node in self.nodes:
            node.start()
        for worker in self.workers:
            worker.start()
        for customer in self.customers:
            customer.start()
        self._begin_faults()
        safety_ms = self.chance.randint(*SAFETY_SEC) * 1000
        self._look_now_and_then()
        self.agenda.run_until(self.started_ms + safety_ms)
        self._calm_down()
        self._drain()

    def _calm_down(self) -> None:
        self.tell("world", "faults stop")
        self.around.hazards = self.network.hazards = NONE
        self.log.faults.late_markers = False
        self.log.write_markers()
        for worker in self.workers:
            worker.healthy = True
        for customer in self.customers:
            customer.active = False
        for server in self.servers:
            server.kept_down = False
            server.mend_clock()
            server.start()
            if server.zone_data != self.around.zone_data:
                server.stop()
        for node in self.nodes:
            node.start()
        self.agenda.after(2 * LATE_MS[1], self.operator.mend)
        self.agenda.run_until(self.agenda.now_ms + CALM_SEC * 1000)

    def _drain(self) -> None:
        """Schedules end, and what was begun must come to its end."""
        self._check_zones()
        self.tell("world", "schedules end")
        for customer in self.customers:
            for known in list(customer.known.values()):
                customer.end_schedule(known)
        end_ms = self.agenda.now_ms + DRAIN_SEC * 1000
        while self.agenda.now_ms < end_ms and not self.drained():
            self.agenda.run_until(self.agenda.now_ms + 2_000)
        self.compare()
        if not self.drained():
            self.violations += [f"not drained after {DRAIN_SEC} s: {each}" for each in self.left_over()]

    def _check_zones(self) -> None:
        """Once all processes have had the newest data for a while."""
        if any(server.zone_data != self.around.zone_data for server in self.servers):
            return
        self.history.read()
        for part in self.history.of:
            now_ms, version = self.agenda.now_ms, self.around.zone_data
            self.violations += check_zones(part, self.oracle, version, now_ms)

    def _look_now_and_then(self) -> None:
        """Callers see what happened; live states are compared with what the log says they are."""
        self.compare()
        if self.around.hazards is self.hazards:
            self.agenda.after(LOOK_MS, self._look_now_and_then)

    def compare(self) -> None:
        """Live states with their replay."""
        self.history.read()
        for server in self.servers:
            if server.steady and server.processor is not None:
                for partition in server.processor.ownership.running():
                    self.violations += self.replicas.compare(partition)

    def drained(self) -> bool:
        """Nothing is waited for any more."""
        return not self.left_over()

    def left_over(self) -> list[str]:
        """What is still open."""
        self.history.read()
        found = [f"{c.tenant}: {c.waiting} requests" for c in self.customers if c.waiting]
        if self.operator.waiting:
            found.append(f"{self.operator.waiting} changes of settings")
        found += [f"partition {n} has no owner that runs it" for n in self._not_running()]
        for part in self.history.of:
            newest = {each.key: each.event for each in part if each.key.startswith("exec:")}
            for key, event in newest.items():
                execution = getattr(event, "execution", None)
                if execution is not None and execution.status not in FINAL:
                    found.append(f"{key}: {execution.status} {execution.waiting_for}")
        return found

    def _not_running(self) -> set[int]:
        running = {
            partition.number
            for server in self.servers
            if server.processor is not None
            for partition in server.processor.ownership.running()
        }
        return set(range(self.partitions)) - running

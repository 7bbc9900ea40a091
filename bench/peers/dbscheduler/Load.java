// db-scheduler under the same load as Horarium: one-off jobs, due at one instant or at a steady rate, that do
// nothing.
//
//   java -cp 'jars/*' Load.java JDBC_URL JOBS RATE LEAD_SEC     (RATE 0: all at once)
//
// Prints one JSON line, which bench/peers/driver.py reads.

import com.github.kagkarlsson.scheduler.Scheduler;
import com.github.kagkarlsson.scheduler.SchedulerClient;
import com.github.kagkarlsson.scheduler.task.SchedulableInstance;
import com.github.kagkarlsson.scheduler.task.helper.OneTimeTask;
import com.github.kagkarlsson.scheduler.task.helper.Tasks;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

class Load {
  static final int BATCH = 1_000;
  static final int THREADS = 50;
  static final int CONNECTIONS = 30;
  static final long WITHIN_MS = 300_000;
  static final String TABLE =
      """
      create table scheduled_tasks (
        task_name text not null, task_instance text not null, task_data bytea,
        execution_time timestamptz not null, picked boolean not null, picked_by text,
        last_success timestamptz, last_failure timestamptz, consecutive_failures int,
        last_heartbeat timestamptz, version bigint not null, priority smallint, state text,
        primary key (task_name, task_instance));
      create index on scheduled_tasks (execution_time);
      create index on scheduled_tasks (last_heartbeat);
      """;

  final HikariDataSource database;
  final int jobs;
  final double rate;
  final long dueMs;
  final AtomicLongArray startedMs;
  final LongAdder runs = new LongAdder();

  Load(String url, int jobs, double rate, double leadSec) {
    var config = new HikariConfig();
    config.setJdbcUrl(url);
    config.setMaximumPoolSize(CONNECTIONS);
    this.database = new HikariDataSource(config);
    this.jobs = jobs;
    this.rate = rate;
    this.dueMs = System.currentTimeMillis() + Math.round(leadSec * 1000);
    this.startedMs = new AtomicLongArray(jobs);
  }

  public static void main(String[] arguments) throws Exception {
    new Load(
            arguments[0],
            Integer.parseInt(arguments[1]),
            Double.parseDouble(arguments[2]),
            Double.parseDouble(arguments[3]))
        .run();
    System.exit(0); // the pool's threads would keep the process
  }

  long dueOf(int number) {
    return dueMs + (rate == 0 ? 0 : Math.round(number * 1000 / rate));
  }

  void run() throws Exception {
    try (var connection = database.getConnection(); var statement = connection.createStatement()) {
      statement.execute(TABLE);
    }
    OneTimeTask<String> task =
        Tasks.oneTime("noop", String.class)
            .execute(
                (instance, context) -> {
                  startedMs.set(Integer.parseInt(instance.getId()), System.currentTimeMillis());
                  runs.increment();
                });
    double registerSec = register(task);
    if (System.currentTimeMillis() > dueMs) {
      throw new IllegalStateException("the first job was due before all were registered: too busy");
    }
    // Its fastest way on PostgreSQL: rows are locked and fetched in one statement, early enough to be never idle.
    var scheduler =
        Scheduler.create(database, task)
            .threads(THREADS)
            .pollUsingLockAndFetch(4, 20)
            .pollingInterval(Duration.ofMillis(100))
            .build();
    scheduler.start();
    long lastMs = waitForAll();
    System.out.printf(
        Locale.ROOT,
        "{\"registerSec\":%.3f,\"dueMs\":%d,\"lastMs\":%d,\"runs\":%d,\"lateMs\":[%s]}%n",
        registerSec,
        dueMs,
        lastMs,
        runs.sum(),
        IntStream.range(0, jobs).mapToObj(this::late).collect(Collectors.joining(",")));
  }

  String late(int number) {
    long started = startedMs.get(number);
    return started == 0 ? "null" : String.valueOf(started - dueOf(number));
  }

  double register(OneTimeTask<String> task) {
    var client = SchedulerClient.Builder.create(database, task).build();
    String pad = "x".repeat(190);
    long began = System.nanoTime();
    for (int first = 0; first < jobs; first += BATCH) {
      List<SchedulableInstance<?>> rows = new ArrayList<>();
      for (int number = first; number < Math.min(jobs, first + BATCH); number++) {
        var instance = task.instance(String.valueOf(number), pad);
        rows.add(SchedulableInstance.of(instance, Instant.ofEpochMilli(dueOf(number))));
      }
      client.scheduleBatch(rows);
    }
    return (System.nanoTime() - began) / 1e9;
  }

  /** Until the last outcome is stored: db-scheduler deletes a one-off task when it is done. */
  long waitForAll() throws SQLException, InterruptedException {
    long deadline = dueOf(jobs - 1) + WITHIN_MS;
    while (System.currentTimeMillis() < deadline) {
      if (runs.sum() >= jobs) {
        try (var connection = database.getConnection();
            var statement = connection.createStatement();
            var open = statement.executeQuery("select exists (select from scheduled_tasks)")) {
          open.next();
          if (!open.getBoolean(1)) break;
        }
      }
      Thread.sleep(2);
    }
    return System.currentTimeMillis();
  }
}

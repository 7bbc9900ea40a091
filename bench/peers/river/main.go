// River under the same load as Horarium: one-off jobs, due at one instant or at a steady rate, that do nothing.
//
//	river URL JOBS RATE LEAD_SEC     (RATE 0: all at once)
//
// Prints one JSON line, which bench/peers/driver.py reads.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	batch       = 2_000
	connections = 20
	maxWorkers  = 2_000 // as many as make sense for jobs that take no time
	within      = 300 * time.Second
)

type noop struct {
	Number int    `json:"number"`
	Pad    string `json:"pad"`
}

func (noop) Kind() string { return "noop" }

// worker notes when each job started. runs counts all starts, so that a job that ran twice shows.
type worker struct {
	river.WorkerDefaults[noop]
	startedMs []atomic.Int64
	runs      atomic.Int64
}

func (w *worker) Work(_ context.Context, job *river.Job[noop]) error {
	w.startedMs[job.Args.Number].Store(time.Now().UnixMilli())
	w.runs.Add(1)
	return nil
}

type result struct {
	RegisterSec float64  `json:"registerSec"`
	DueMs       int64    `json:"dueMs"`
	LastMs      int64    `json:"lastMs"`
	Runs        int64    `json:"runs"`
	LateMs      []*int64 `json:"lateMs"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type load struct {
	url  string
	jobs int
	rate float64
	due  time.Time
}

func parse(arguments []string) (load, error) {
	if len(arguments) != 4 {
		return load{}, errors.New("usage: river URL JOBS RATE LEAD_SEC")
	}
	jobs, wrongJobs := strconv.Atoi(arguments[1])
	rate, wrongRate := strconv.ParseFloat(arguments[2], 64)
	leadSec, wrongLead := strconv.ParseFloat(arguments[3], 64)
	due := time.Now().Add(time.Duration(leadSec * float64(time.Second))).Truncate(time.Millisecond)
	return load{arguments[0], jobs, rate, due}, errors.Join(wrongJobs, wrongRate, wrongLead)
}

func (l load) dueOf(number int) time.Time {
	if l.rate == 0 {
		return l.due
	}
	return l.due.Add(time.Duration(float64(number) / l.rate * float64(time.Second)))
}

func run() error {
	load, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	ctx := context.Background()
	pool, err := open(ctx, load.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	noted := &worker{startedMs: make([]atomic.Int64, load.jobs)}
	workers := river.NewWorkers()
	river.AddWorker(workers, noted)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}},
		Workers:           workers,
		FetchCooldown:     10 * time.Millisecond,
		FetchPollInterval: 50 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	registerSec, err := register(ctx, client, load)
	if err != nil {
		return err
	}
	if time.Now().After(load.due) {
		return errors.New("the first job was due before all were registered: the machine is too busy")
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	lastMs, err := wait(ctx, pool, noted, load)
	if err != nil {
		return err
	}
	stopping, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := client.Stop(stopping); err != nil {
		return err
	}
	late := make([]*int64, load.jobs)
	for number := range late {
		if started := noted.startedMs[number].Load(); started != 0 {
			ms := started - load.dueOf(number).UnixMilli()
			late[number] = &ms
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result{registerSec, load.due.UnixMilli(), lastMs, noted.runs.Load(), late})
}

func open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return pool, err
}

// register inserts in batches by COPY, River's fastest way, and says how long it took.
func register[T any](ctx context.Context, client *river.Client[T], load load) (float64, error) {
	pad := strings.Repeat("x", 190)
	began := time.Now()
	for first := 0; first < load.jobs; first += batch {
		var rows []river.InsertManyParams
		for number := first; number < min(load.jobs, first+batch); number++ {
			rows = append(rows, river.InsertManyParams{
				Args:       noop{Number: number, Pad: pad},
				InsertOpts: &river.InsertOpts{ScheduledAt: load.dueOf(number)},
			})
		}
		if _, err := client.InsertManyFast(ctx, rows); err != nil {
			return 0, err
		}
	}
	return time.Since(began).Seconds(), nil
}

// wait returns when the last outcome is stored: a job that ran but is not marked may run again.
func wait(ctx context.Context, pool *pgxpool.Pool, noted *worker, load load) (int64, error) {
	deadline := load.dueOf(load.jobs - 1).Add(within)
	for time.Now().Before(deadline) {
		if noted.runs.Load() >= int64(load.jobs) {
			var open bool
			err := pool.QueryRow(ctx, "select exists (select from river_job where state <> 'completed')").Scan(&open)
			if err != nil {
				return 0, err
			}
			if !open {
				break
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Now().UnixMilli(), nil
}

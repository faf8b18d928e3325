// Task commits: as writers.rs.
package main

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maintainEvery = 500 * time.Millisecond
	fillBatch     = 256
	turns         = 2
)

type group struct{ id, first, next uint64 }

// Writer goes round its groups.
type Writer struct {
	groups   []group
	turn     int
	nEntries uint64
	job      *Job
	pool     Pool
}

func newWriter(which uint64, job *Job, pool Pool) *Writer {
	bound := func(writer uint64) uint64 { return job.Groups * writer / job.Writers }
	w := &Writer{job: job, pool: pool, nEntries: which * 977}
	for id := bound(which); id < bound(which+1); id++ {
		w.groups = append(w.groups, group{id: id + 1, first: 1, next: 1})
	}
	return w
}

func (w *Writer) append_(g *group, keep uint64) Append {
	w.nEntries++
	a := Append{group: g.id, index: g.next, payload: w.pool.get(w.nEntries)}
	g.next++
	if slack := max(keep/10, 1); g.next-g.first > keep+slack {
		a.truncateFrom, a.truncateTo = g.first, g.next-keep
		g.first = a.truncateTo
	}
	return a
}

func (w *Writer) nextBatch(n int) []Append {
	batch := make([]Append, 0, n)
	for i := 0; i < min(n, len(w.groups)); i++ {
		batch = append(batch, w.append_(&w.groups[w.turn%len(w.groups)], w.job.Keep))
		w.turn++
	}
	return batch
}

func (w *Writer) fill(store *Store, entries uint64) error {
	batch := make([]Append, 0, fillBatch)
	for n := uint64(0); n < entries; n++ {
		for i := range w.groups {
			batch = append(batch, w.append_(&w.groups[i], math.MaxUint64/2))
			if len(batch) == fillBatch {
				if err := store.load(batch); err != nil {
					return err
				}
				batch = batch[:0]
			}
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return store.load(batch)
}

// turnOver replaces each live entry once, truncating.
func (w *Writer) turnOver(store *Store) error {
	for left := len(w.groups) * int(w.job.Keep); left > 0; {
		batch := w.nextBatch(int(w.job.GroupsPerCommit))
		left -= len(batch)
		if err := store.load(batch); err != nil {
			return err
		}
	}
	return nil
}

func commits(job *Job) (Figures, error) {
	store, err := open(job)
	if err != nil {
		return nil, err
	}
	pool := newPool(job.EntryBytes)
	writers := make([]*Writer, job.Writers)
	for which := range writers {
		writers[which] = newWriter(uint64(which), job, pool)
		if err := writers[which].fill(store, job.Keep); err != nil {
			return nil, err
		}
	}
	if err := store.flush(); err != nil {
		return nil, err
	}
	if job.Sync && job.GroupsPerCommit > 1 {
		for range turns {
			for _, writer := range writers {
				if err := writer.turnOver(store); err != nil {
					return nil, err
				}
			}
			if err := store.flush(); err != nil {
				return nil, err
			}
			if err := store.maintain(); err != nil {
				return nil, err
			}
		}
	}

	var counting, stopped atomic.Bool
	var done sync.WaitGroup
	samples := make([][]uint32, job.Writers)
	failures := make([]error, job.Writers+1)
	for which, writer := range writers {
		done.Add(1)
		go func() {
			defer done.Done()
			samples[which], failures[which] = writeUntil(writer, store, &counting, &stopped)
		}()
	}
	done.Add(1)
	go func() {
		defer done.Done()
		failures[job.Writers] = maintainUntil(store, &stopped)
	}()
	time.Sleep(time.Duration(job.Seconds / 5 * 1e9))
	before, started := counters(job.Dir), time.Now()
	counting.Store(true)
	time.Sleep(time.Duration(job.Seconds * 1e9))
	counting.Store(false)
	window, cost := time.Since(started), counters(job.Dir).since(before)
	stopped.Store(true)
	done.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}

	return report(job, slices.Concat(samples...), window, cost), nil
}

func report(job *Job, latencies []uint32, window time.Duration, cost Counters) Figures {
	slices.Sort(latencies)
	nCommits := float64(len(latencies))
	if nCommits == 0 {
		// Nothing per commit can be said.
		return Figures{"commits_per_s": 0, "entries_per_s": 0}
	}
	nEntries := nCommits * float64(min(job.GroupsPerCommit, job.Groups/job.Writers))
	live := float64(job.Groups * job.Keep * job.EntryBytes)
	return Figures{
		"commits_per_s":             nCommits / window.Seconds(),
		"entries_per_s":             nEntries / window.Seconds(),
		"p50_us":                    percentile(latencies, 500) / 1e3,
		"p99_us":                    percentile(latencies, 990) / 1e3,
		"p999_us":                   percentile(latencies, 999) / 1e3,
		"cpu_us_per_entry":          cost.cpuSeconds * 1e6 / nEntries,
		"bytes_per_user_byte":       float64(cost.writtenBytes(job.Sync)) / (nEntries * float64(job.EntryBytes)),
		"device_writes_per_commit":  float64(cost.deviceWrites) / nCommits,
		"device_flushes_per_commit": float64(cost.deviceFlushes) / nCommits,
		"disk_over_live":            float64(diskBytes(job.Dir)) / live,
	}
}

func writeUntil(w *Writer, store *Store, counting, stopped *atomic.Bool) ([]uint32, error) {
	latencies := make([]uint32, 0, 1<<16)
	for !stopped.Load() {
		batch := w.nextBatch(int(w.job.GroupsPerCommit))
		counts := counting.Load()
		started := time.Now()
		if err := store.commit(batch); err != nil {
			return nil, err
		}
		nanos := time.Since(started).Nanoseconds()
		if counts && counting.Load() {
			latencies = append(latencies, uint32(min(nanos, math.MaxUint32)))
		}
	}
	return latencies, nil
}

func maintainUntil(store *Store, stopped *atomic.Bool) error {
	last := time.Now()
	for !stopped.Load() {
		time.Sleep(20 * time.Millisecond)
		if time.Since(last) >= maintainEvery {
			if err := store.maintain(); err != nil {
				return err
			}
			last = time.Now()
		}
	}
	return nil
}

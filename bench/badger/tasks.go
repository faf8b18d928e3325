// The other tasks: as tasks.rs.
package main

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

const (
	rangeEntries   = 100
	nColdRanges    = 41
	settle         = 3 * time.Second
	overwriteBatch = 32
	slackBytes     = 4 * 64 << 20
)

func fill(job *Job) (Figures, error) {
	store, err := open(job)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	if err := newWriter(0, job, newPool(job.EntryBytes)).fill(store, job.Entries); err != nil {
		return nil, err
	}
	if err := store.flush(); err != nil {
		return nil, err
	}
	return Figures{"fill_s": time.Since(started).Seconds()}, nil
}

func opened(job *Job) (Figures, error) {
	before, started := counters(job.Dir), time.Now()
	store, err := open(job)
	if err != nil {
		return nil, err
	}
	for group := uint64(1); group <= job.Groups; group++ {
		last, err := store.lastIndex(group)
		if err != nil {
			return nil, err
		}
		if last != job.Entries {
			return nil, fmt.Errorf("group %d ends at %d, want %d", group, last, job.Entries)
		}
	}
	cpu := counters(job.Dir).since(before).cpuSeconds
	return Figures{"open_s": time.Since(started).Seconds(), "open_cpu_s": cpu}, nil
}

func queries(job *Job) (Figures, error) {
	store, err := open(job)
	if err != nil {
		return nil, err
	}
	for group := uint64(1); group <= job.Groups; group++ {
		payloads, err := store.read(group, 1, job.Entries+1)
		if err != nil {
			return nil, err
		}
		if uint64(len(payloads)) != job.Entries {
			return nil, fmt.Errorf("group %d has %d entries", group, len(payloads))
		}
	}
	figures := Figures{}
	at := &Positions{1}
	calls := []struct {
		name string
		call func() error
	}{
		{"last_index_us", func() error {
			_, err := store.lastIndex(at.below(job.Groups) + 1)
			return err
		}},
		{"log_size_us", func() error {
			_, err := store.logBytes(at.below(job.Groups)+1, 1, job.Entries+1)
			return err
		}},
		{"term_us", func() error {
			_, err := store.term(at.below(job.Groups)+1, at.below(job.Entries)+1)
			return err
		}},
		{"range_hot_us", func() error { return readRange(job, store, at) }},
	}
	for _, timed := range calls {
		if figures[timed.name], err = timeCalls(job.Seconds, timed.call); err != nil {
			return nil, err
		}
	}
	return figures, nil
}

func coldRanges(job *Job) (Figures, error) {
	store, err := open(job)
	if err != nil {
		return nil, err
	}
	at := &Positions{3}
	times := make([]float64, 0, nColdRanges)
	for range nColdRanges {
		if err := evict(job.Dir); err != nil {
			return nil, err
		}
		started := time.Now()
		if err := readRange(job, store, at); err != nil {
			return nil, err
		}
		times = append(times, time.Since(started).Seconds()*1e6)
	}
	slices.Sort(times)
	return Figures{"range_cold_us": times[nColdRanges/2]}, nil
}

func readRange(job *Job, store *Store, at *Positions) error {
	group := at.below(job.Groups) + 1
	first := at.below(job.Entries-rangeEntries+1) + 1
	payloads, err := store.read(group, first, first+rangeEntries)
	if err == nil && len(payloads) != rangeEntries {
		err = fmt.Errorf("%d entries of group %d from %d", len(payloads), group, first)
	}
	return err
}

// timeCalls is microseconds a call over at least seconds; the clock is read once in a growing number of calls.
func timeCalls(seconds float64, call func() error) (float64, error) {
	started := time.Now()
	calls, step := 0, 1
	for time.Since(started).Seconds() < seconds {
		for i := 0; i < step; i++ {
			if err := call(); err != nil {
				return 0, err
			}
		}
		calls += step
		step = min(step*2, 1<<14)
	}
	return time.Since(started).Seconds() * 1e6 / float64(calls), nil
}

func overwrite(job *Job) (Figures, error) {
	before := counters(job.Dir)
	store, err := open(job)
	if err != nil {
		return nil, err
	}
	writer := newWriter(0, job, newPool(job.EntryBytes))
	live := job.Groups * job.Keep
	var written, asked, peak uint64
	for written < live*job.Rewrites {
		batch := writer.nextBatch(overwriteBatch)
		written += uint64(len(batch))
		if err := store.load(batch); err != nil {
			return nil, err
		}
		if written-asked >= live/8 {
			asked = written
			if err := store.flush(); err != nil {
				return nil, err
			}
			if err := store.maintain(); err != nil {
				return nil, err
			}
			peak = max(peak, diskBytes(job.Dir))
		}
	}
	if err := store.flush(); err != nil {
		return nil, err
	}
	left := diskBytes(job.Dir)
	for started := time.Now(); time.Since(started) < settle; {
		if err := store.maintain(); err != nil {
			return nil, err
		}
		time.Sleep(200 * time.Millisecond)
		left = diskBytes(job.Dir)
	}
	cost := counters(job.Dir).since(before)
	liveBytes := float64(live * job.EntryBytes)
	return Figures{
		"space_over_live":      float64(left) / liveBytes,
		"space_over_bound":     float64(left) / (1.5*liveBytes + slackBytes),
		"space_peak_over_live": float64(max(peak, left)) / liveBytes,
		"bytes_per_user_byte":  float64(cost.writtenBytes(true)) / float64(written*job.EntryBytes),
	}, nil
}

func acknowledge(job *Job) (Figures, error) {
	store, err := open(job)
	if err != nil {
		return nil, err
	}
	for index := uint64(1); index <= job.Entries; index++ {
		for group := uint64(1); group <= job.Groups; group++ {
			payload := checkedPayload(group, index, job.EntryBytes)
			if err := store.commit([]Append{{group: group, index: index, payload: payload}}); err != nil {
				return nil, err
			}
		}
	}
	return Figures{}, nil
}

func check(job *Job) (Figures, error) {
	store, err := open(job)
	if err != nil {
		return nil, err
	}
	var lost, wrong, refused float64
	for group := uint64(1); group <= job.Groups; group++ {
		last, err := store.lastIndex(group)
		if err != nil {
			return nil, err
		}
		if last < job.Entries {
			lost += float64(job.Entries - last)
		}
		for index := uint64(1); index <= min(last, job.Entries); index++ {
			payloads, err := store.read(group, index, index+1)
			switch {
			case err != nil:
				refused++
			case len(payloads) == 0:
				lost++
			case !bytes.Equal(payloads[0], checkedPayload(group, index, job.EntryBytes)):
				wrong++
			}
		}
	}
	return Figures{"lost": lost, "wrong": wrong, "refused": refused, "reported": 0}, nil
}

// Badger v4 on the jobs of tarn-bench-raftlog: one job as a JSON argument, one answer as a JSON line.
//
// The jobs, the payloads and the answers are those of bench/raftlog/src (job.rs, payload.rs, writers.rs, tasks.rs): a change there is a
// change here.
//
// Configuration: the documented defaults, with SyncWrites as the job asks, conflict detection off (its documentation: for writers that do
// not conflict, and a Raft group has one appender) and no logger. The value threshold stays at its default of 1 MiB, so that an entry is
// written once, to the memtable's log; below the entry size each commit would write and sync two files. A commit is one transaction;
// Badger itself groups transactions that wait. Truncation deletes each key. Space is asked for with RunValueLogGC(0.5), as documented.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// Job is job.rs' Job.
type Job struct {
	Task            string  `json:"task"`
	Dir             string  `json:"dir"`
	Sync            bool    `json:"sync"`
	Groups          uint64  `json:"groups"`
	Writers         uint64  `json:"writers"`
	GroupsPerCommit uint64  `json:"groups_per_commit"`
	EntryBytes      uint64  `json:"entry_bytes"`
	Keep            uint64  `json:"keep"`
	Entries         uint64  `json:"entries"`
	Rewrites        uint64  `json:"rewrites"`
	Seconds         float64 `json:"seconds"`
}

// Figures are an answer's numbers by name.
type Figures map[string]float64

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The process ends as if killed: nothing is closed.
	os.Exit(0)
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: %s JOB, with the job as JSON", os.Args[0])
	}
	var job Job
	if err := json.Unmarshal([]byte(os.Args[1]), &job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	tasks := map[string]func(*Job) (Figures, error){
		"commits":     commits,
		"fill":        fill,
		"open":        opened,
		"queries":     queries,
		"cold_ranges": coldRanges,
		"overwrite":   overwrite,
		"acknowledge": acknowledge,
		"check":       check,
	}
	task, known := tasks[job.Task]
	if !known {
		return fmt.Errorf("unknown task %q", job.Task)
	}
	figures, err := task(&job)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]Figures{"figures": figures})
}

// What did it cost? As measure.rs.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Counters of this process and of the device under a folder.
type Counters struct {
	cpuSeconds    float64
	accounted     uint64
	deviceBytes   uint64
	deviceWrites  uint64
	deviceFlushes uint64
}

func counters(dir string) Counters {
	var c Counters
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		c.cpuSeconds = seconds(usage.Utime) + seconds(usage.Stime)
	}
	io, _ := os.ReadFile("/proc/self/io")
	for _, line := range strings.Split(string(io), "\n") {
		if value, found := strings.CutPrefix(line, "write_bytes: "); found {
			c.accounted, _ = strconv.ParseUint(value, 10, 64)
		}
	}
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) == nil {
		device := uint64(stat.Dev)
		text, _ := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(device), unix.Minor(device)))
		if fields := strings.Fields(string(text)); len(fields) > 15 {
			c.deviceWrites, _ = strconv.ParseUint(fields[4], 10, 64)
			sectors, _ := strconv.ParseUint(fields[6], 10, 64)
			c.deviceBytes = sectors * 512
			c.deviceFlushes, _ = strconv.ParseUint(fields[15], 10, 64)
		}
	}
	return c
}

func seconds(t unix.Timeval) float64 {
	return float64(t.Sec) + float64(t.Usec)/1e6
}

func (c Counters) since(before Counters) Counters {
	return Counters{
		cpuSeconds:    c.cpuSeconds - before.cpuSeconds,
		accounted:     c.accounted - before.accounted,
		deviceBytes:   c.deviceBytes - before.deviceBytes,
		deviceWrites:  c.deviceWrites - before.deviceWrites,
		deviceFlushes: c.deviceFlushes - before.deviceFlushes,
	}
}

// writtenBytes is what the kernel accounts to the process; if all is flushed, no more than the device wrote (measure.rs says why).
func (c Counters) writtenBytes(flushed bool) uint64 {
	if flushed && c.deviceBytes > 0 {
		return min(c.accounted, c.deviceBytes)
	}
	return c.accounted
}

// percentile is the value below which perMille of the sorted samples lie; there is at least one.
func percentile(sorted []uint32, perMille int) float64 {
	return float64(sorted[min(len(sorted)*perMille/1000, len(sorted)-1)])
}

// diskBytes is what the files of a folder take. A file may go while it is listed.
func diskBytes(dir string) uint64 {
	var bytes uint64
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		var stat unix.Stat_t
		if err == nil && entry.Type().IsRegular() && unix.Stat(path, &stat) == nil {
			bytes += uint64(stat.Blocks) * 512
		}
		return nil
	})
	return bytes
}

// evict puts the files of a folder out of the page cache. What Badger has mapped stays.
func evict(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := file.Sync(); err != nil {
			return err
		}
		return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

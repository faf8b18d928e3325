// How does Badger store a Raft log? One key an entry: the group and the index, big-endian; the value is the term and the payload.
package main

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/dgraph-io/badger/v4"
)

const term = 5

// Transactions that may be on their way while filling.
const inFlight = 16

// Append is one entry, and the entries of its group that end with it: [truncateFrom, truncateTo).
type Append struct {
	group, index             uint64
	payload                  []byte
	truncateFrom, truncateTo uint64
}

// Store is Badger under measurement.
type Store struct {
	db      *badger.DB
	slots   chan struct{}
	pending sync.WaitGroup
	lock    sync.Mutex
	failed  error
}

func open(job *Job) (*Store, error) {
	options := badger.DefaultOptions(job.Dir).WithSyncWrites(job.Sync).WithDetectConflicts(false).WithLogger(nil)
	db, err := badger.Open(options)
	if err != nil {
		return nil, err
	}
	return &Store{db: db, slots: make(chan struct{}, inFlight)}, nil
}

func key(group, index uint64) []byte {
	key := make([]byte, 0, 16)
	key = binary.BigEndian.AppendUint64(key, group)
	return binary.BigEndian.AppendUint64(key, index)
}

func (s *Store) transaction(appends []Append) (*badger.Txn, error) {
	txn := s.db.NewTransaction(true)
	for _, append_ := range appends {
		value := make([]byte, 0, 8+len(append_.payload))
		value = binary.LittleEndian.AppendUint64(value, term)
		value = append(value, append_.payload...)
		if err := txn.SetEntry(badger.NewEntry(key(append_.group, append_.index), value)); err != nil {
			return nil, err
		}
		for index := append_.truncateFrom; index < append_.truncateTo; index++ {
			if err := txn.Delete(key(append_.group, index)); err != nil {
				return nil, err
			}
		}
	}
	return txn, nil
}

// commit is durable on return if the job says sync.
func (s *Store) commit(appends []Append) error {
	txn, err := s.transaction(appends)
	if err != nil {
		return err
	}
	return txn.Commit()
}

// load is durable after flush.
func (s *Store) load(appends []Append) error {
	txn, err := s.transaction(appends)
	if err != nil {
		return err
	}
	s.slots <- struct{}{}
	s.pending.Add(1)
	txn.CommitWith(func(err error) {
		if err != nil {
			s.lock.Lock()
			s.failed = err
			s.lock.Unlock()
		}
		<-s.slots
		s.pending.Done()
	})
	return nil
}

func (s *Store) flush() error {
	s.pending.Wait()
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.failed != nil {
		return s.failed
	}
	return s.db.Sync()
}

func (s *Store) lastIndex(group uint64) (uint64, error) {
	var last uint64
	err := s.db.View(func(txn *badger.Txn) error {
		options := badger.IteratorOptions{Reverse: true, Prefix: key(group, 0)[:8]}
		entries := txn.NewIterator(options)
		defer entries.Close()
		entries.Seek(key(group, ^uint64(0)))
		if entries.Valid() {
			last = binary.BigEndian.Uint64(entries.Item().Key()[8:])
		}
		return nil
	})
	return last, err
}

func (s *Store) term(group, index uint64) (uint64, error) {
	var found uint64
	err := s.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(key(group, index))
		if err != nil {
			return err
		}
		return item.Value(func(value []byte) error {
			found = binary.LittleEndian.Uint64(value)
			return nil
		})
	})
	return found, err
}

// scan calls visit with the items of [first, end) of a group, in order.
func (s *Store) scan(group, first, end uint64, values bool, visit func(*badger.Item) error) error {
	return s.db.View(func(txn *badger.Txn) error {
		options := badger.DefaultIteratorOptions
		options.PrefetchValues = values
		options.Prefix = key(group, 0)[:8]
		entries := txn.NewIterator(options)
		defer entries.Close()
		for entries.Seek(key(group, first)); entries.Valid(); entries.Next() {
			item := entries.Item()
			if binary.BigEndian.Uint64(item.Key()[8:]) >= end {
				return nil
			}
			if err := visit(item); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) logBytes(group, first, end uint64) (uint64, error) {
	var bytes uint64
	err := s.scan(group, first, end, false, func(item *badger.Item) error {
		bytes += uint64(item.ValueSize())
		return nil
	})
	return bytes, err
}

func (s *Store) read(group, first, end uint64) ([][]byte, error) {
	payloads := make([][]byte, 0, end-first)
	err := s.scan(group, first, end, true, func(item *badger.Item) error {
		value, err := item.ValueCopy(nil)
		if err == nil {
			payloads = append(payloads, value[8:])
		}
		return err
	})
	return payloads, err
}

func (s *Store) maintain() error {
	err := s.db.RunValueLogGC(0.5)
	if errors.Is(err, badger.ErrNoRewrite) || errors.Is(err, badger.ErrRejected) {
		return nil
	}
	return err
}

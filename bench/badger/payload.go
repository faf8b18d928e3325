// Which bytes are written? Those of payload.rs.
package main

import "encoding/binary"

const (
	poolBytes = 16 << 20
	maxPool   = 8192
)

func splitmix(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// payload is length bytes decided by seed: of 64 bytes, 32 are random and 32 repeat.
func payload(seed, length uint64) []byte {
	state := seed
	bytes := make([]byte, 0, length+64)
	for uint64(len(bytes)) < length {
		for i := 0; i < 4; i++ {
			bytes = binary.LittleEndian.AppendUint64(bytes, splitmix(&state))
		}
		for i := 0; i < 32; i++ {
			bytes = append(bytes, '.')
		}
	}
	return bytes[:length]
}

// checkedPayload is the payload of an entry that will be compared.
func checkedPayload(group, index, length uint64) []byte {
	return payload(group<<40|index, length)
}

// Pool hands out distinct payloads of one length.
type Pool [][]byte

func newPool(length uint64) Pool {
	n := min(max(poolBytes/max(length, 1), 64), maxPool)
	pool := make(Pool, n)
	for i := range pool {
		pool[i] = payload(uint64(i)+1, length)
	}
	return pool
}

func (p Pool) get(i uint64) []byte {
	return p[i%uint64(len(p))]
}

// Positions is a small seeded sequence.
type Positions struct{ state uint64 }

func (p *Positions) below(n uint64) uint64 {
	return splitmix(&p.state) % max(n, 1)
}

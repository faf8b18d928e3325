// Does pgx work? Parameters and results in the binary forms that it chooses, CopyFrom, batches, arrays, errors by SQLSTATE and transactions.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

var (
	ctx  = context.Background()
	noon = time.Date(2026, 7, 1, 12, 0, 0, 250_000_000, time.FixedZone("", 7200))
)

const rows = 10_000

// row is what kinds has, as a program keeps it.
type row struct {
	ID    int64
	B     bool
	I2    int16
	I4    int32
	F8    float64
	D     pgtype.Numeric
	T     *string
	Raw   []byte
	Day   time.Time
	At    time.Time
	Plain time.Time
	U     [16]byte
}

func (r row) values() []any {
	return []any{r.ID, r.B, r.I2, r.I4, r.F8, r.D, r.T, r.Raw, r.Day, r.At, r.Plain, r.U}
}

func kind(id int64) row {
	var d pgtype.Numeric
	must(d.Scan(fmt.Sprintf("%d.25", id)))
	text := fmt.Sprintf("text %d", id)
	r := row{ID: id, B: id%2 == 0, I2: int16(id % 100), I4: int32(-id), F8: float64(id) / 4, D: d, T: &text, Raw: []byte{0, byte(id), 255}}
	r.Day, r.At = time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), noon.Add(time.Duration(id)*time.Second)
	r.Plain, r.U = time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC), [16]byte{1, 2, 3, byte(id)}
	if id%7 == 0 {
		r.T = nil
	}
	return r
}

func main() {
	db, err := pgx.Connect(ctx, fmt.Sprintf("postgres://tarn@127.0.0.1:%s/tarn?sslmode=disable", os.Getenv("TARN_PORT")))
	must(err)
	defer db.Close(ctx)
	parts := []struct {
		name string
		run  func(*pgx.Conn)
	}{{"types", types}, {"copy", copied}, {"arrays", arrays}, {"pages", pages}, {"errors", mistakes}, {"transactions", transactions}}
	for _, part := range parts {
		part.run(db)
		fmt.Println(part.name + ": passed")
	}
}

func types(db *pgx.Conn) {
	exec(db, `CREATE TABLE kinds (id bigint PRIMARY KEY, b boolean, i2 smallint, i4 int, f8 double precision, d numeric(12, 2), t text,
		raw bytea, day date, at timestamptz, plain timestamp, u uuid)`)
	want := kind(3)
	exec(db, "INSERT INTO kinds VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)", want.values()...)
	same(read(db, "SELECT * FROM kinds WHERE id = $1", 3), want)
	same(one[int64](db, "SELECT count(*) FROM kinds WHERE at = $1 AND d = $2 AND day = $3 AND u = $4", want.At, want.D, want.Day, want.U), int64(1))
	exec(db, "DELETE FROM kinds WHERE id = $1", 3)
}

func copied(db *pgx.Conn) {
	columns := []string{"id", "b", "i2", "i4", "f8", "d", "t", "raw", "day", "at", "plain", "u"}
	source := pgx.CopyFromSlice(rows, func(i int) ([]any, error) { return kind(int64(i)).values(), nil })
	n, err := db.CopyFrom(ctx, pgx.Identifier{"kinds"}, columns, source)
	must(err)
	same(n, int64(rows))
	same(one[int64](db, "SELECT sum(id)::bigint FROM kinds"), int64(rows*(rows-1)/2))
	for _, id := range []int64{0, 7, 1234, rows - 1} {
		same(read(db, "SELECT * FROM kinds WHERE id = $1", id), kind(id))
	}
	// A row that cannot be: nothing of it is there.
	bad := [][]any{{int64(rows), "kept?"}, {nil, "no key"}}
	_, err = db.CopyFrom(ctx, pgx.Identifier{"kinds"}, []string{"id", "t"}, pgx.CopyFromRows(bad))
	state(err, "23502")
	same(one[int64](db, "SELECT count(*) FROM kinds WHERE id >= $1", rows), int64(0))
}

func arrays(db *pgx.Conn) {
	same(list[int64](db, "SELECT id FROM kinds WHERE id = ANY($1) ORDER BY id", []int64{5, 2, 99_999}), []int64{2, 5})
	same(list[int64](db, "SELECT id FROM kinds WHERE id = ANY($1)", []int64{}), []int64{})
	same(list[int64](db, "SELECT id FROM kinds WHERE t = ANY($1)", []string{"text 4", "x"}), []int64{4})
	same(list[int64](db, "SELECT id FROM kinds WHERE day = ANY($1) AND id < 2 ORDER BY 1", []time.Time{kind(0).Day}), []int64{0, 1})
	same(list[int32](db, "SELECT * FROM unnest($1::int[])", []int32{3, 1, 2}), []int32{3, 1, 2})
	same(one[[]int64](db, "SELECT array_agg(id ORDER BY id) FROM kinds WHERE id < 3"), []int64{0, 1, 2})
	two := "b"
	same(one[[]*string](db, "SELECT $1::text[]", []*string{nil, &two}), []*string{nil, &two})
}

func pages(db *pgx.Conn) {
	same(list[int64](db, "SELECT id FROM kinds ORDER BY id LIMIT $1 OFFSET $2", 2, 100), []int64{100, 101})
	batch := &pgx.Batch{}
	for id := range 20 {
		batch.Queue("UPDATE kinds SET t = $2 WHERE id = $1", id, "changed")
	}
	must(db.SendBatch(ctx, batch).Close())
	same(one[int64](db, "SELECT count(*) FROM kinds WHERE t = $1", "changed"), int64(20))
}

func mistakes(db *pgx.Conn) {
	for sql, want := range map[string]string{"SELECT * FROM nothing": "42P01", "SELECT colour FROM kinds": "42703", "SELEC 1": "42601", "SELECT 1 / 0": "22012"} {
		_, err := db.Exec(ctx, sql)
		state(err, want)
	}
}

func transactions(db *pgx.Conn) {
	for _, commit := range []bool{false, true} {
		tx, err := db.Begin(ctx)
		must(err)
		for id := range 2 {
			_, err = tx.Exec(ctx, "INSERT INTO kinds (id) VALUES ($1)", rows+id)
			must(err)
		}
		n := int64(0)
		if commit {
			must(tx.Commit(ctx))
			n = 2
		} else {
			must(tx.Rollback(ctx))
		}
		same(one[int64](db, "SELECT count(*) FROM kinds WHERE id >= $1", rows), n)
	}
}

func exec(db *pgx.Conn, sql string, args ...any) {
	_, err := db.Exec(ctx, sql, args...)
	must(err)
}

func read(db *pgx.Conn, sql string, args ...any) row {
	found, err := db.Query(ctx, sql, args...)
	must(err)
	read, err := pgx.CollectExactlyOneRow(found, pgx.RowToStructByPos[row])
	must(err)
	return read
}

func one[T any](db *pgx.Conn, sql string, args ...any) T {
	var value T
	must(db.QueryRow(ctx, sql, args...).Scan(&value))
	return value
}

func list[T any](db *pgx.Conn, sql string, args ...any) []T {
	found, err := db.Query(ctx, sql, args...)
	must(err)
	values, err := pgx.CollectRows(found, pgx.RowTo[T])
	must(err)
	return values
}

// same holds two values against each other; instants by their moment, numbers by their value.
func same(is, want any) {
	if a, ok := is.(row); ok {
		b := want.(row)
		if !a.At.Equal(b.At) || !a.Day.Equal(b.Day) || !a.Plain.Equal(b.Plain) {
			panic(fmt.Sprintf("%v %v %v, want %v %v %v", a.At, a.Day, a.Plain, b.At, b.Day, b.Plain))
		}
		a.At, a.Day, a.Plain = b.At, b.Day, b.Plain
		x, _ := a.D.Float64Value()
		y, _ := b.D.Float64Value()
		if x == y {
			a.D = b.D
		}
		is = a
	}
	if !reflect.DeepEqual(is, want) {
		panic(fmt.Sprintf("%v, want %v", is, want))
	}
}

func state(err error, want string) {
	var told *pgconn.PgError
	if !errors.As(err, &told) || told.Code != want {
		panic(fmt.Sprintf("%v, want %s", err, want))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

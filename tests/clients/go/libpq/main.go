// Does lib/pq work, and database/sql on it? Parameters and results as text and in binary, arrays, CopyIn, pages, errors, transactions, LISTEN,
// and three zones.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/lib/pq"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 250_000_000, time.FixedZone("", 7200))

const uuid = "12345678-1234-5678-1234-567812345678"

func address(options string) string {
	host := os.Getenv("PGHOST")
	if host == "" {
		host = "127.0.0.1"
	}
	return fmt.Sprintf("postgres://tarn@%s:%s/tarn?sslmode=disable%s", host, os.Getenv("TARN_PORT"), options)
}

func main() {
	db, err := sql.Open("postgres", address(""))
	must(err)
	defer db.Close()
	parts := []struct {
		name string
		run  func(*sql.DB)
	}{{"types", types}, {"arrays", arrays}, {"bulk", bulk}, {"mistakes", mistakes}, {"transactions", transactions}, {"heard", heard}, {"zones", zones}}
	for _, part := range parts {
		part.run(db)
		fmt.Println(part.name + ": passed")
	}
}

func types(db *sql.DB) {
	exec(db, `CREATE TABLE pq (id bigserial PRIMARY KEY, b boolean, i4 int, f8 double precision, d numeric(10, 2), t text, raw bytea, day date,
		at timestamptz, plain timestamp, u uuid, j jsonb)`)
	day := time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC)
	insert := `INSERT INTO pq (b, i4, f8, d, t, raw, day, at, plain, u, j) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING id`
	values := []any{true, -7, 2.5, "12.50", "ünï 'x' \\", []byte{0, 255}, day, noon, day, uuid, `{"a": [1, null]}`}
	same(one[int64](db, insert, values...), int64(1))
	for _, options := range []string{"", "&binary_parameters=yes"} {
		other, err := sql.Open("postgres", address(options))
		must(err)
		var (
			b    bool
			i4   int32
			f8   float64
			d, t string
			raw  []byte
			at   time.Time
			u, j string
			is   sql.NullTime
		)
		row := other.QueryRow("SELECT b, i4, f8, d, t, raw, at, u, j, NULL::timestamptz FROM pq WHERE id = $1 AND at = $2 AND day = $3", 1, noon, day)
		must(row.Scan(&b, &i4, &f8, &d, &t, &raw, &at, &u, &j, &is))
		same([]any{b, i4, f8, d, t, raw, u, j, is.Valid}, []any{true, int32(-7), 2.5, "12.50", values[4], values[5], uuid, values[10], false})
		same(at.Equal(noon), true)
		must(other.Close())
	}
	rows, err := db.Query("SELECT id, d, t, at FROM pq")
	must(err)
	columns, err := rows.ColumnTypes()
	must(err)
	names := []string{}
	for _, column := range columns {
		names = append(names, column.DatabaseTypeName())
	}
	same(names, []string{"INT8", "NUMERIC", "TEXT", "TIMESTAMPTZ"})
	precision, scale, _ := columns[1].DecimalSize()
	same([]int64{precision, scale}, []int64{10, 2})
	must(rows.Close())
}

func arrays(db *sql.DB) {
	exec(db, "INSERT INTO pq (i4, t) SELECT * FROM unnest($1::int[], $2::text[])", pq.Array([]int64{10, 11, 12}), pq.Array([]string{"a", "b", `c,"d"`}))
	same(one[int64](db, "SELECT count(*) FROM pq WHERE i4 = ANY($1)", pq.Array([]int64{10, 12, 99})), int64(2))
	var texts []string
	must(db.QueryRow("SELECT array_agg(t ORDER BY i4) FROM pq WHERE i4 >= 10").Scan(pq.Array(&texts)))
	same(texts, []string{"a", "b", `c,"d"`})
}

func bulk(db *sql.DB) {
	tx, err := db.Begin()
	must(err)
	copy, err := tx.Prepare(pq.CopyIn("pq", "i4", "t", "at"))
	must(err)
	for n := range 5000 {
		var text any
		if n%7 != 0 {
			text = fmt.Sprintf("name\t%d", n)
		}
		_, err = copy.Exec(n+1000, text, noon)
		must(err)
	}
	_, err = copy.Exec()
	must(err)
	must(copy.Close())
	must(tx.Commit())
	same(one[int64](db, "SELECT count(t) FROM pq WHERE i4 >= 1000 AND at = $1", noon), int64(4285))
	page, err := db.Prepare("SELECT i4 FROM pq WHERE i4 >= 1000 ORDER BY i4 LIMIT $1 OFFSET $2")
	must(err)
	var found int
	must(page.QueryRow(1, 100).Scan(&found))
	same(found, 1100)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err = db.ExecContext(ctx, "SELECT pg_sleep(10)")
	same(err != nil, true)
}

func mistakes(db *sql.DB) {
	for sql, want := range map[string]string{"SELECT * FROM nothing": "42P01", "SELECT colour FROM pq": "42703", "SELEC 1": "42601", "SELECT 1 / 0": "22012",
		"INSERT INTO pq (id) VALUES (1)": "23505"} {
		_, err := db.Exec(sql)
		var told *pq.Error
		if !errors.As(err, &told) || string(told.Code) != want {
			panic(fmt.Sprintf("%s: %v, want %s", sql, err, want))
		}
	}
}

func transactions(db *sql.DB) {
	for _, isolation := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelRepeatableRead} {
		tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: isolation})
		must(err)
		_, err = tx.Exec("INSERT INTO pq (i4) VALUES ($1)", 9000)
		must(err)
		var n int
		must(tx.QueryRow("SELECT count(*) FROM pq WHERE i4 = 9000").Scan(&n))
		same([]int64{int64(n), one[int64](db, "SELECT count(*) FROM pq WHERE i4 = 9000")}, []int64{1, 0})
		must(tx.Rollback())
	}
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	must(err)
	_, err = tx.Exec("DELETE FROM pq")
	var told *pq.Error
	same(errors.As(err, &told) && told.Code == "25006", true)
	must(tx.Rollback())
}

func heard(db *sql.DB) {
	listener := pq.NewListener(address(""), time.Second, time.Minute, nil)
	defer listener.Close()
	must(listener.Listen("news"))
	exec(db, "SELECT pg_notify('news', 'hello')")
	select {
	case note := <-listener.Notify:
		same(note.Extra, "hello")
	case <-time.After(10 * time.Second):
		panic("nothing was heard")
	}
}

func zones(db *sql.DB) {
	for _, name := range []string{"UTC", "Europe/Zurich", "America/New_York"} {
		other, err := sql.Open("postgres", address("&timezone="+name))
		must(err)
		zone, err := time.LoadLocation(name)
		must(err)
		var at, now time.Time
		var day string
		must(other.QueryRow("SELECT at, now(), at::date::text FROM pq WHERE id = 1").Scan(&at, &now, &day))
		same([]any{at.Equal(noon), day, at.Format("15:04 -0700")}, []any{true, "2026-07-01", noon.In(zone).Format("15:04 -0700")})
		same(time.Since(now).Abs() < 5*time.Minute, true)
		must(other.Close())
	}
}

func exec(db *sql.DB, sql string, args ...any) {
	_, err := db.Exec(sql, args...)
	must(err)
}

func one[T any](db *sql.DB, sql string, args ...any) T {
	var value T
	must(db.QueryRow(sql, args...).Scan(&value))
	return value
}

func same(is, want any) {
	if !reflect.DeepEqual(is, want) {
		panic(fmt.Sprintf("%v, want %v", is, want))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

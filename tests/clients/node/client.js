// Does node-postgres work? A pool, parameters of every type both ways, pages, COPY, cursors, errors by SQLSTATE, transactions, and dates in a
// process whose clocks are elsewhere (run.py sets TZ).
"use strict";

const assert = require("node:assert/strict");
const { Readable } = require("node:stream");
const { pipeline } = require("node:stream/promises");
const { Client, Pool } = require("pg");
const Cursor = require("pg-cursor");
const copy = require("pg-copy-streams");

const at = { host: "127.0.0.1", port: Number(process.env.TARN_PORT), user: "tarn", database: "tarn" };
const NOON = new Date("2026-07-01T12:00:00.250+02:00");

async function types(pool) {
  await pool.query(`CREATE TABLE kinds (id bigint PRIMARY KEY, b boolean, i2 smallint, i4 int, f8 double precision, d numeric(10, 2),
    t text, raw bytea, day date, at timestamptz, plain timestamp, u uuid, j json)`);
  const uuid = "12345678-1234-5678-1234-567812345678";
  const row = [1, true, -7, 2_000_000_000, 2.5, "12.50", "ünïcödé 'x' \\", Buffer.from([0, 255]), "2026-02-28", NOON, "2026-02-28 12:30:00", uuid, { a: [1, null] }];
  const inserted = await pool.query("INSERT INTO kinds VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING id", row);
  assert.equal(inserted.rowCount, 1);
  assert.equal(inserted.rows[0].id, "1"); // int8 is a text in node-postgres
  const { rows, fields } = await pool.query("SELECT * FROM kinds WHERE id = $1", [1]);
  const read = rows[0];
  assert.deepEqual([read.b, read.i2, read.i4, read.f8, read.d, read.t], [true, -7, 2_000_000_000, 2.5, "12.50", "ünïcödé 'x' \\"]);
  assert.deepEqual([...read.raw], [0, 255]);
  assert.equal(read.at.getTime(), NOON.getTime());
  // A date and a time without a zone are of this process' clocks.
  assert.deepEqual([read.day.getFullYear(), read.day.getMonth(), read.day.getDate(), read.day.getHours()], [2026, 1, 28, 0]);
  assert.equal(read.plain.getHours(), 12);
  assert.equal(read.u, uuid);
  assert.deepEqual(read.j, { a: [1, null] });
  assert.deepEqual(fields.map((field) => field.dataTypeID), [20, 16, 21, 23, 701, 1700, 25, 17, 1082, 1184, 1114, 2950, 114]);
  const found = await pool.query("SELECT count(*)::int AS n FROM kinds WHERE at = $1 AND u = $2 AND day = $3 AND d = $4", [NOON, uuid, "2026-02-28", 12.5]);
  assert.equal(found.rows[0].n, 1);
  const nulls = await pool.query("INSERT INTO kinds (id, t) VALUES ($1, $2) RETURNING *", [2, null]);
  assert.deepEqual(nulls.rows[0].t, null);
}

async function arrays(pool) {
  await pool.query("INSERT INTO kinds (id, t) SELECT * FROM unnest($1::bigint[], $2::text[])", [[10, 11, 12], ["a", null, 'b,"c"']]);
  const { rows } = await pool.query("SELECT id, t FROM kinds WHERE id = ANY($1) ORDER BY id", [[12, 10, 99]]);
  assert.deepEqual(rows, [{ id: "10", t: "a" }, { id: "12", t: 'b,"c"' }]);
  assert.equal((await pool.query("SELECT id FROM kinds WHERE id = ANY($1)", [[]])).rowCount, 0);
  const uuid = "12345678-1234-5678-1234-567812345678";
  assert.equal((await pool.query("SELECT id FROM kinds WHERE u = ANY($1)", [[uuid]])).rowCount, 1);
  const back = await pool.query("SELECT $1::int[] AS i, $2::text[] AS t, array_agg(id ORDER BY id) AS ids FROM kinds WHERE id > 10", [[1, null], ["x y", null]]);
  assert.deepEqual(back.rows[0], { i: [1, null], t: ["x y", null], ids: ["11", "12"] });
}

async function copied(pool) {
  const client = await pool.connect();
  await client.query("CREATE TABLE copied (id bigint PRIMARY KEY, name text)");
  const lines = Readable.from((function* () {
    for (let id = 0; id < 5000; id++) yield `${id}\t${id % 7 === 0 ? "\\N" : `name ${id}`}\n`;
  })());
  const into = client.query(copy.from("COPY copied FROM STDIN"));
  await pipeline(lines, into);
  assert.equal(into.rowCount, 5000);
  let out = "";
  for await (const chunk of client.query(copy.to("COPY (SELECT id, name FROM copied WHERE id < 3 ORDER BY id) TO STDOUT"))) out += chunk;
  assert.equal(out, "0\t\\N\n1\tname 1\n2\tname 2\n");
  client.release();
}

async function paged(pool) {
  const { rows } = await pool.query("SELECT id FROM copied ORDER BY id LIMIT $1 OFFSET $2", [2, 100]);
  assert.deepEqual(rows.map((row) => row.id), ["100", "101"]);
  const named = { name: "one", text: "SELECT name FROM copied WHERE id = $1" };
  for (const id of [1, 2, 3]) assert.equal((await pool.query({ ...named, values: [id] })).rows[0].name, `name ${id}`);
  const client = await pool.connect();
  const cursor = client.query(new Cursor("SELECT id FROM copied WHERE id >= $1 ORDER BY id", [10]));
  let n = 0;
  for (let rows = await cursor.read(1000); rows.length; rows = await cursor.read(1000)) n += rows.length;
  assert.equal(n, 4990);
  await cursor.close();
  client.release();
}

async function errors(pool) {
  const cases = [
    ["SELECT * FROM nothing", [], "42P01", 15],
    ["SELECT colour FROM copied", [], "42703", 8],
    ["SELEC 1", [], "42601", 1],
    ["SELECT nosuch(1)", [], "42883", 8],
    ["SELECT 1 / $1::int", [0], "22012"],
    ["SELECT id FROM copied WHERE id = $1", ["x"], "22P02"],
    ["INSERT INTO copied (name) VALUES ($1)", ["x"], "23502"],
  ];
  for (const [text, values, code, position] of cases) {
    const error = await pool.query(text, values).then(() => assert.fail(text), (error) => error);
    assert.equal(error.code, code, text);
    if (position) assert.equal(error.position, String(position), text);
  }
}

async function transactions(pool) {
  const client = await pool.connect();
  const count = async () => (await pool.query("SELECT count(*)::int AS n FROM copied WHERE id >= 10000")).rows[0].n;
  await client.query("BEGIN");
  await client.query("INSERT INTO copied VALUES ($1, $2)", [10000, "a"]);
  await client.query("INSERT INTO copied VALUES ($1, $2)", [10001, "b"]);
  assert.equal(await count(), 0);
  await client.query("ROLLBACK");
  assert.equal(await count(), 0);
  await client.query("BEGIN");
  await client.query("INSERT INTO copied VALUES ($1, $2)", [10000, "a"]);
  await client.query("COMMIT");
  assert.equal(await count(), 1);
  client.release();
}

async function main() {
  const pool = new Pool({ ...at, max: 3 });
  for (const part of [types, arrays, copied, paged, errors, transactions]) {
    await part(pool);
    console.log(`${part.name}: passed`);
  }
  await pool.end();
  for (const zone of ["UTC", "Europe/Zurich", "America/New_York"]) {
    const client = new Client({ ...at, options: `-c TimeZone=${zone}` });
    await client.connect();
    const { rows } = await client.query("SELECT at, now() - $1::timestamptz < interval '1 minute' AS is_now FROM kinds WHERE at = $2", [new Date(), NOON]);
    assert.equal(rows[0].at.getTime(), NOON.getTime(), zone);
    assert.equal(rows[0].is_now, true, zone);
    await client.end();
  }
  console.log("zones: passed");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

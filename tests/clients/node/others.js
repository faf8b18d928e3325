// Do postgres.js, knex and Drizzle work? Each as its users begin: a schema, rows in and out, pages, transactions in each other, JSON, COPY, what the
// catalog says, and migrations.
"use strict";

const assert = require("node:assert/strict");
const { mkdirSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");
const { Readable } = require("node:stream");
const { pipeline } = require("node:stream/promises");

const { Pool } = require("pg");
const postgres = require("postgres");
const knex = require("knex");
const { drizzle } = require("drizzle-orm/postgres-js");
const { drizzle: drizzlePool } = require("drizzle-orm/node-postgres");
const { migrate } = require("drizzle-orm/postgres-js/migrator");
const core = require("drizzle-orm/pg-core");
const { and, desc, eq, gt, inArray, sql: raw } = require("drizzle-orm");

const host = process.env.PGHOST || "127.0.0.1";
const port = Number(process.env.TARN_PORT);
const at = { host, port, user: "tarn", database: "tarn" };
const isPostgres = process.env.TARN_TEST_POSTGRES === "yes";
const NOON = new Date("2026-07-01T12:00:00.250+02:00");
const UUID = "12345678-1234-5678-1234-567812345678";

// A step that Tarn refuses with `state` until it has `what`; on PostgreSQL it must pass.
async function waitsFor(what, state, does) {
  if (isPostgres) return does();
  const code = (error) => error && (error.code || code(error.cause));
  const error = await does().then(() => assert.fail(`${what}: works now, so it waits for nothing any more`), (error) => error);
  assert.equal(code(error), state, `${what}: ${error.message}`);
}

async function refused(state, does) {
  const error = await does().then(() => assert.fail(`is not refused with ${state}`), (error) => error);
  assert.equal(error.code || error.cause?.code, state, error.message);
}

async function postgresJs() {
  const sql = postgres({ ...at, max: 3, onnotice: () => {} });
  await sql`CREATE TABLE IF NOT EXISTS js (id int PRIMARY KEY, name text, at timestamptz, d numeric(10, 2), u uuid, j jsonb, big bigint, raw bytea, day date)`;
  const row = { id: 1, name: "ünï", at: NOON, d: "12.50", u: UUID, j: { a: [1, null] }, big: "9007199254740993", raw: Buffer.from([0, 255]) };
  const [made] = await sql`INSERT INTO js ${sql(row)} RETURNING *`;
  assert.deepEqual({ ...made, raw: [...made.raw] }, { ...row, raw: [0, 255], day: null });
  await sql`INSERT INTO js ${sql(Array.from({ length: 500 }, (_, n) => ({ id: n + 10, name: n % 7 ? `name ${n}` : null, day: "2026-02-28" })), "id", "name", "day")}`;
  assert.deepEqual((await sql`SELECT id FROM js WHERE id = ANY(${[12, 10, 99999]}) ORDER BY id`).map((row) => row.id), [10, 12]);
  assert.equal((await sql`SELECT id FROM js WHERE id IN ${sql([10, 11])} AND day = ${new Date("2026-02-28T00:00:00Z")}`).length, 2);
  assert.deepEqual([...(await sql`SELECT id FROM js ORDER BY id LIMIT ${2} OFFSET ${100}`)], [{ id: 109 }, { id: 110 }]);
  assert.equal((await sql`UPDATE js SET ${sql({ name: "new", big: 5 }, "name", "big")} WHERE id = ${10}`).count, 1);
  assert.deepEqual((await sql`SELECT j -> 'a' AS a FROM js WHERE j @> ${sql.json({ a: [1] })}`)[0].a, [1, null]);
  let n = 0;
  for await (const rows of sql`SELECT id FROM js WHERE id >= 10`.cursor(100)) n += rows.length;
  assert.equal(n, 500);
  await pipeline(Readable.from(["1001\tx\n", "1002\ty\n"]), await sql`COPY js (id, name) FROM STDIN`.writable());
  assert.equal((await sql`SELECT count(*)::int AS n FROM js WHERE id > 1000`)[0].n, 2);
  await refused("40000", () => sql.begin(async (sql) => {
    await sql`INSERT INTO js (id) VALUES (2000)`;
    await sql.savepoint(async (sql) => sql`INSERT INTO js (id) VALUES (1)`).catch((error) => assert.equal(error.code, "23505"));
    assert.equal((await sql`SELECT id FROM js WHERE id = 2000`).length, 1);
    throw Object.assign(new Error("back"), { code: "40000" });
  }));
  assert.equal((await sql`SELECT id FROM js WHERE id = 2000`).length, 0);
  const heard = new Promise((resolve) => sql.listen("news", resolve, () => sql.notify("news", "hello")));
  assert.equal(await heard, "hello");
  await refused("42P01", () => sql`SELECT * FROM nothing`);
  assert.deepEqual((await sql`SELECT * FROM js`.describe()).columns.map((column) => column.type), [23, 25, 1184, 1700, 2950, 3802, 20, 17, 1082]);
  await sql.end();
}

async function ofKnex() {
  const db = knex({ client: "pg", connection: at, pool: { min: 0, max: 3 } });
  await db.schema.createTable("kx", (table) => {
    table.increments("id");
    table.string("name", 40).notNullable();
    table.timestamp("at").defaultTo(db.fn.now());
    table.decimal("d", 10, 2).defaultTo(0);
    table.jsonb("j");
    table.uuid("u").defaultTo(db.raw("gen_random_uuid()"));
  });
  assert.deepEqual([await db.schema.hasTable("kx"), await db.schema.hasTable("ky"), await db.schema.hasColumn("kx", "d")], [true, false, true]);
  const [first] = await db("kx").insert({ name: "ada", j: { a: 1 }, at: NOON }).returning(["id", "at", "d"]);
  assert.deepEqual(first, { id: 1, at: NOON, d: "0.00" });
  await db.batchInsert("kx", Array.from({ length: 300 }, (_, n) => ({ name: `n${n}`, d: n })), 100);
  assert.deepEqual(await db("kx").where("d", ">", 10).andWhere("name", "like", "n2%").orderBy("id").limit(2).offset(1).pluck("name"), ["n21", "n22"]);
  assert.deepEqual(await db("kx").count("* as n").sum("d as s").first(), { n: "301", s: "44850.00" });
  assert.equal((await db("kx").whereIn("name", ["n1", "n2"]).update({ d: db.raw("d + 1") })), 2);
  assert.equal((await db("kx").whereJsonSupersetOf("j", { a: 1 })).length, 1);
  await db("kx").insert({ id: 1, name: "merged" }).onConflict("id").merge(["name"]);
  await db("kx").insert({ id: 1, name: "ignored" }).onConflict("id").ignore();
  assert.equal((await db("kx").where({ id: 1 }).first()).name, "merged");
  const columns = await db("kx").columnInfo();
  assert.deepEqual([columns.name.type, columns.name.maxLength, columns.name.nullable, columns.d.type], ["character varying", 40, false, "numeric"]);
  await db.transaction(async (tx) => {
    await tx("kx").insert({ name: "outer" });
    await tx.transaction(async (inner) => {
      await inner("kx").insert({ name: "inner" });
      throw new Error("back");
    }).catch((error) => assert.equal(error.message, "back"));
    assert.ok(await tx("kx").where({ name: "outer" }).forUpdate().first());
  });
  assert.deepEqual(await db("kx").whereIn("name", ["outer", "inner"]).pluck("name"), ["outer"]);
  let n = 0;
  for await (const _ of db("kx").select("id").stream()) n++;
  assert.equal(n, 302);
  await refused("23502", () => db("kx").insert({ name: null }));

  // Migrations, in transactions and with knex's own lock.
  const folder = join(process.env.TARN_TEST_DIR, "knex");
  mkdirSync(folder);
  const step = (up, down, options = "") => `exports.up = (db) => ${up};\nexports.down = (db) => ${down};\n${options}`;
  writeFileSync(join(folder, "1_make.js"), step('db.schema.createTable("ky", (t) => { t.bigIncrements(); t.text("a"); })', 'db.schema.dropTable("ky")'));
  writeFileSync(join(folder, "2_add.js"), step('db.schema.alterTable("ky", (t) => t.integer("b"))', "Promise.resolve()", "exports.config = { transaction: false };"));
  const migrations = { directory: folder };
  await db.migrate.latest(migrations);
  assert.equal(await db.schema.hasColumn("ky", "b"), true);
  assert.equal(await db.migrate.currentVersion(migrations), "2");
  await db.migrate.rollback(migrations, true);
  assert.equal(await db.schema.hasTable("ky"), false);
  await db.schema.renameTable("kx", "kz");
  await db.schema.alterTable("kz", (table) => table.unique(["name"]));
  await db.schema.alterTable("kz", (table) => table.dropUnique(["name"]));
  await db.schema.alterTable("kz", (table) => table.index(["name"]));
  await db.schema.alterTable("kz", (table) => table.dropIndex(["name"]));
  await db.schema.alterTable("kz", (table) => table.renameColumn("name", "label"));
  await db.schema.alterTable("kz", (table) => table.dropColumn("j"));
  assert.equal(await db.schema.hasColumn("kz", "j"), false);
  await db.schema.dropTable("kz");
  await db.destroy();
}

async function ofDrizzle() {
  const users = core.pgTable("users", {
    id: core.bigint("id", { mode: "number" }).primaryKey().generatedByDefaultAsIdentity(),
    name: core.varchar("name", { length: 40 }).notNull(),
    at: core.timestamp("at", { withTimezone: true }).defaultNow(),
    d: core.numeric("d", { precision: 10, scale: 2 }).default("0"),
    data: core.jsonb("data"),
    u: core.uuid("u").defaultRandom(),
  });
  const posts = core.pgTable("posts", { id: core.serial("id").primaryKey(), user: core.bigint("user_id", { mode: "number" }), text: core.text("text") });

  // What drizzle-kit generates, but for a foreign key and the name of the identity's sequence; its journal is in a schema of its own.
  const folder = join(process.env.TARN_TEST_DIR, "drizzle");
  mkdirSync(join(folder, "meta"), { recursive: true });
  const entries = [{ idx: 0, version: "7", when: 1, tag: "0000_begin", breakpoints: true }];
  writeFileSync(join(folder, "meta", "_journal.json"), JSON.stringify({ version: "7", dialect: "postgresql", entries }));
  const statements = [
    `CREATE TABLE "users" ("id" bigint PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY, "name" varchar(40) NOT NULL,
      "at" timestamp with time zone DEFAULT now(), "d" numeric(10, 2) DEFAULT '0', "data" jsonb, "u" uuid DEFAULT gen_random_uuid());`,
    'CREATE TABLE "posts" ("id" serial PRIMARY KEY NOT NULL, "user_id" bigint, "text" text);',
  ];
  writeFileSync(join(folder, "0000_begin.sql"), statements.join("\n--> statement-breakpoint\n"));
  const sql = postgres({ ...at, max: 1, onnotice: () => {} });
  const db = drizzle(sql, { schema: { users, posts } });
  await migrate(db, { migrationsFolder: folder });
  await migrate(db, { migrationsFolder: folder });

  const [ada] = await db.insert(users).values({ name: "ada", at: NOON, data: { a: [1] } }).returning();
  assert.deepEqual([ada.id, ada.at, ada.d, ada.data], [1, NOON, "0.00", { a: [1] }]);
  await db.insert(users).values(Array.from({ length: 100 }, (_, n) => ({ name: `u${n}`, d: String(n) })));
  await db.insert(posts).values([{ user: 1, text: "one" }, { user: 1, text: "two" }, { user: 2, text: "three" }]);
  const page = await db.select({ name: users.name }).from(users).where(and(gt(users.d, "10"), inArray(users.name, ["u20", "u30", "u5"]))).orderBy(desc(users.name)).limit(2);
  assert.deepEqual(page, [{ name: "u30" }, { name: "u20" }]);
  const joined = await db.select({ name: users.name, n: raw`count(${posts.id})::int` }).from(users).innerJoin(posts, eq(posts.user, users.id)).groupBy(users.name).orderBy(users.name);
  assert.deepEqual(joined, [{ name: "ada", n: 2 }, { name: "u0", n: 1 }]);
  await db.insert(users).values({ id: 1, name: "other" }).onConflictDoUpdate({ target: users.id, set: { name: raw`excluded.name || '!'` } });
  assert.equal((await db.query.users.findFirst({ where: eq(users.id, 1) })).name, "other!");
  await db.transaction(async (tx) => {
    await tx.update(users).set({ d: raw`${users.d} + 1` }).where(eq(users.id, 1));
    await tx.transaction(async (inner) => { await inner.delete(users); inner.rollback(); }).catch(() => {});
    assert.equal(await tx.$count(users), 101);
  });
  assert.equal((await db.select().from(users).where(eq(users.id, 1)).for("update"))[0].d, "1.00");
  await refused("23502", () => db.insert(users).values({ name: null }));
  const pool = new Pool(at);
  assert.equal((await drizzlePool(pool).select().from(posts)).length, 3);
  await pool.end();
  const named = "CREATE TABLE named (id int GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME named_seq START WITH 1))";
  await waitsFor("IDENTITY (SEQUENCE NAME …)", "42601", () => sql.unsafe(named));
  // Tables of another schema than public.
  await sql`CREATE SCHEMA IF NOT EXISTS shop`;
  const carts = core.pgSchema("shop").table("carts", { id: core.serial("id").primaryKey(), name: core.text("name") });
  await sql.unsafe('CREATE TABLE "shop"."carts" ("id" serial PRIMARY KEY NOT NULL, "name" text)');
  assert.deepEqual(await db.insert(carts).values({ name: "one" }).returning(), [{ id: 1, name: "one" }]);
  await db.update(carts).set({ name: "two" }).where(eq(carts.id, 1));
  assert.deepEqual(await db.select({ name: carts.name }).from(carts), [{ name: "two" }]);
  await sql`DROP SCHEMA shop CASCADE`;
  await sql`DROP SCHEMA drizzle CASCADE`;
  await sql.end();
}

async function main() {
  for (const part of [postgresJs, ofKnex, ofDrizzle]) {
    await part();
    console.log(`${part.name}: passed`);
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

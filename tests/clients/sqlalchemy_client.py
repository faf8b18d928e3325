"""SQLAlchemy on psycopg, pandas on it, and asyncpg, as their users begin: make tables, write, page, reflect, nest transactions."""

import asyncio
import datetime
import os
import uuid

import asyncpg
import pandas as pd
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects.postgresql import JSONB

PORT = os.environ["TARN_PORT"]
ENGINE = sa.create_engine(f"postgresql+psycopg://tarn@127.0.0.1:{PORT}/tarn")
NOON = datetime.datetime(2026, 7, 1, 12, 0, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


def core():
    meta = sa.MetaData()
    items = sa.Table(
        "items",
        meta,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("u", sa.Uuid),
        sa.Column("v", sa.Text, server_default="none"),
        sa.Column("at", sa.DateTime(timezone=True)),
        sa.Column("n", sa.Numeric(10, 2)),
    )
    meta.create_all(ENGINE)
    meta.create_all(ENGINE)
    one = uuid.uuid4()
    with ENGINE.begin() as c:
        assert c.execute(sa.insert(items).returning(items.c.id), {"id": 1, "u": one, "at": NOON, "n": 1.5}).scalar() == 1
    with ENGINE.begin() as c:
        c.execute(sa.insert(items), [{"id": i, "u": uuid.uuid4(), "v": "a", "at": None, "n": i} for i in range(2, 500)])
    with ENGINE.connect() as c:
        row = c.execute(sa.select(items).where(items.c.u == one)).one()
        assert (row.v, row.at, str(row.n)) == ("none", NOON, "1.50"), row
        page = sa.select(items.c.id).where(items.c.id.in_([1, 2, 3, 900])).order_by(items.c.id).limit(2).offset(1)
        assert c.execute(page).scalars().all() == [2, 3]
        has = sa.select(sa.exists().where(items.c.id == 499))
        assert c.execute(has).scalar() is True
    with ENGINE.begin() as c:
        with c.begin_nested():
            c.execute(sa.insert(items), {"id": 1000, "u": one})
        try:
            with c.begin_nested():
                c.execute(sa.text("SELECT 1 / 0"))
        except sa.exc.DBAPIError as error:
            assert error.orig.sqlstate == "22012", error
    with ENGINE.connect() as c:
        assert c.execute(sa.select(sa.func.count()).where(items.c.id == 1000)).scalar() == 1
    # A unit of work: two tables, and what was written is read before it is committed.
    notes = sa.Table("notes", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True, autoincrement=False), sa.Column("item", sa.Integer))
    notes.create(ENGINE)
    with ENGINE.begin() as c:
        c.execute(sa.insert(items), {"id": 1001, "u": one})
        c.execute(sa.insert(notes), [{"id": 1, "item": 1001}, {"id": 2, "item": 1000}])
        both = sa.select(sa.func.count()).select_from(items.join(notes, items.c.id == notes.c.item))
        assert c.execute(both).scalar() == 2
        c.execute(sa.delete(notes).where(notes.c.id == 2))
        assert c.execute(both).scalar() == 1
    with ENGINE.connect() as c:
        assert c.execute(both).scalar() == 1


def reflection():
    with ENGINE.begin() as c:
        c.execute(sa.text("CREATE TABLE pairs (a int, b text, n numeric(10, 2) DEFAULT 5, u uuid, j json, PRIMARY KEY (b, a))"))
    inspector = sa.inspect(ENGINE)
    assert {"items", "pairs"} <= set(inspector.get_table_names()), inspector.get_table_names()
    assert "keys" not in inspector.get_table_names()
    assert "public" in inspector.get_schema_names()
    columns = {column["name"]: column for column in inspector.get_columns("pairs")}
    kinds = {name: str(column["type"]) for name, column in columns.items()}
    assert kinds == {"a": "INTEGER", "b": "TEXT", "n": "NUMERIC(10, 2)", "u": "UUID", "j": "JSON"}, kinds
    assert columns["n"]["default"] == "5.00" and not columns["a"]["nullable"], columns
    assert inspector.get_pk_constraint("pairs")["constrained_columns"] == ["b", "a"]
    assert inspector.get_foreign_keys("pairs") == [] and inspector.get_unique_constraints("pairs") == []
    meta = sa.MetaData()
    meta.reflect(ENGINE)
    assert [column.name for column in meta.tables["pairs"].primary_key] == ["b", "a"]


def schemas():
    with ENGINE.begin() as c:
        c.execute(sa.schema.CreateSchema("sales", if_not_exists=True))
    meta = sa.MetaData(schema="sales")
    orders = sa.Table("orders", meta, sa.Column("id", sa.Integer, primary_key=True), sa.Column("state", sa.String(10), unique=True))
    meta.create_all(ENGINE)
    meta.create_all(ENGINE)
    inspector = sa.inspect(ENGINE)
    assert "sales" in inspector.get_schema_names() and inspector.get_table_names(schema="sales") == ["orders"]
    assert "orders" not in inspector.get_table_names()
    assert [u["column_names"] for u in inspector.get_unique_constraints("orders", schema="sales")] == [["state"]]
    with ENGINE.begin() as c:
        assert c.execute(sa.insert(orders).returning(orders.c.id), {"state": "open"}).scalar() == 1
        c.execute(sa.update(orders).where(orders.c.id == 1).values(state="done"))
        assert c.execute(sa.select(orders.c.state)).scalar() == "done"
    with ENGINE.connect() as c:
        named = c.execution_options(schema_translate_map={None: "sales"})
        plain = sa.Table("orders", sa.MetaData(), sa.Column("state", sa.String))
        assert named.execute(sa.select(plain.c.state)).scalar() == "done"
        c.execute(sa.text("SET search_path = sales"))
        assert c.execute(sa.text("SELECT state FROM orders")).scalar() == "done"
    reflected = sa.MetaData()
    reflected.reflect(ENGINE, schema="sales")
    assert list(reflected.tables) == ["sales.orders"]
    with ENGINE.begin() as c:
        c.execute(sa.schema.DropSchema("sales", cascade=True))


def documents():
    meta = sa.MetaData()
    data = sa.Column("data", JSONB)
    docs = sa.Table("docs", meta, sa.Column("id", sa.Integer, primary_key=True, autoincrement=False), data, sa.Column("raw", sa.JSON))
    meta.create_all(ENGINE)
    first = {"a": {"b": "x", "n": 5}, "tags": ["r", "s"]}
    with ENGINE.begin() as c:
        c.execute(sa.insert(docs), [{"id": 1, "data": first, "raw": {"q": [1]}}, {"id": 2, "data": [1], "raw": None}])
    by_id = sa.select(docs.c.id).order_by(docs.c.id)
    array = sa.dialects.postgresql.array
    questions = [
        (by_id.where(data["a"]["b"].astext == "x"), [1]),
        (by_id.where(data["a"]["n"].as_integer() == 5), [1]),
        (by_id.where(data[("a", "b")].astext == "x"), [1]),
        (by_id.where(data.contains({"tags": ["s"]})), [1]),
        (by_id.where(data.has_key("a")), [1]),
        (by_id.where(data.has_any(array(["z", "tags"]))), [1]),
        (by_id.where(data == sa.cast([1.0], JSONB)), [2]),
        (sa.select(docs.c.data).order_by(docs.c.data.desc()), [first, [1]]),
        (sa.select(docs.c.raw["q"][0].as_integer()).where(docs.c.id == 1), [1]),
        (sa.select(sa.func.jsonb_array_elements_text(data["tags"])).where(docs.c.id == 1), ["r", "s"]),
        (sa.select(sa.func.jsonb_agg(docs.c.id)), [[1, 2]]),
    ]
    with ENGINE.connect() as c:
        for question, wanted in questions:
            found = c.execute(question).scalars().all()
            assert found == wanted, f"{question}: {found}"
    with ENGINE.begin() as c:
        c.execute(sa.update(docs).where(docs.c.id == 2).values(data=sa.func.jsonb_set(data, array(["0"]), sa.cast({"k": 1}, JSONB))))
    with ENGINE.connect() as c:
        assert c.execute(sa.select(docs.c.data).where(docs.c.id == 2)).scalar() == [{"k": 1}]
    assert str(sa.inspect(ENGINE).get_columns("docs")[1]["type"]) == "JSONB"


def arrays():
    meta = sa.MetaData()
    tags, sizes = sa.Column("tags", sa.ARRAY(sa.Text), nullable=False, server_default="{}"), sa.Column("sizes", sa.ARRAY(sa.Integer))
    bags = sa.Table("bags", meta, sa.Column("id", sa.Integer, primary_key=True, autoincrement=False), tags, sizes)
    meta.create_all(ENGINE)
    with ENGINE.begin() as c:
        c.execute(sa.insert(bags), [{"id": 1, "tags": ["a", "b c"], "sizes": [1, None]}, {"id": 2, "tags": [], "sizes": None}])
        c.execute(sa.insert(bags).values(id=3))
    pg = sa.dialects.postgresql
    by_id = sa.select(bags.c.id).order_by(bags.c.id)
    has = sa.type_coerce(bags.c.tags, pg.ARRAY(sa.Text))
    questions = [
        (sa.select(bags.c.tags).order_by(bags.c.id), [["a", "b c"], [], []]),
        (sa.select(bags.c.sizes).where(bags.c.id == 1), [[1, None]]),
        (by_id.where(has.contains(["a"])), [1]),
        (by_id.where(has.overlap(["b c", "x"])), [1]),
        (by_id.where(bags.c.tags.any("a")), [1]),
        (by_id.where(bags.c.tags[2] == "b c"), [1]),
        (by_id.where(sa.func.cardinality(bags.c.tags) == 0), [2, 3]),
        (sa.select(sa.func.unnest(bags.c.tags)).where(bags.c.id == 1), ["a", "b c"]),
    ]
    with ENGINE.connect() as c:
        for question, wanted in questions:
            found = c.execute(question).scalars().all()
            assert found == wanted, f"{question}: {found}"
    with ENGINE.begin() as c:
        c.execute(sa.update(bags).where(bags.c.id == 2).values(tags=["n"]))
    kinds = {column["name"]: str(column["type"]) for column in sa.inspect(ENGINE).get_columns("bags")}
    assert kinds == {"id": "INTEGER", "tags": "TEXT[]", "sizes": "INTEGER[]"} or kinds["tags"] == "ARRAY", kinds
    reflected = sa.Table("bags", sa.MetaData(), autoload_with=ENGINE)
    with ENGINE.connect() as c:
        assert c.execute(sa.select(reflected.c.tags).where(reflected.c.id == 2)).scalar() == ["n"]


def indexes():
    meta = sa.MetaData()
    visits = sa.Table(
        "visits",
        meta,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("who", sa.String(20), index=True),
        sa.Column("code", sa.Integer, unique=True, index=True),
        sa.Column("at", sa.Integer),
    )
    sa.Index("by_at", visits.c.at.desc(), visits.c.who, postgresql_ops={"who": "varchar_pattern_ops"})
    meta.create_all(ENGINE)
    with ENGINE.begin() as c:
        c.execute(sa.insert(visits), [{"id": i, "who": f"w{i % 20}", "code": i + 1000, "at": i % 9} for i in range(200)])
    with ENGINE.connect() as c:
        by_who = sa.select(sa.func.count()).where(visits.c.who == "w7")
        assert c.execute(by_who).scalar() == 10
        assert c.execute(sa.select(visits.c.id).where(visits.c.code.in_([1003, 1005, 9])).order_by(visits.c.id)).scalars().all() == [3, 5]
        assert c.execute(sa.select(sa.func.count()).where(visits.c.at == 4, visits.c.who == "w4")).scalar() == 2
    found = {index["name"]: index for index in sa.inspect(ENGINE).get_indexes("visits")}
    assert {name: (index["column_names"], index["unique"]) for name, index in found.items()} == {
        "by_at": (["at", "who"], False),
        "ix_visits_code": (["code"], True),
        "ix_visits_who": (["who"], False),
    }, found
    assert found["by_at"]["column_sorting"] == {"at": ("desc",)} and found["by_at"]["dialect_options"]["postgresql_ops"] == {"who": "varchar_pattern_ops"}, found
    assert not found["ix_visits_who"].get("dialect_options", {}).get("postgresql_ops"), found
    reflected = sa.Table("visits", sa.MetaData(), autoload_with=ENGINE)
    assert sorted(index.name for index in reflected.indexes) == sorted(found)
    found = next(index for index in visits.indexes if index.name == "by_at")
    found.drop(ENGINE)
    assert "by_at" not in [index["name"] for index in sa.inspect(ENGINE).get_indexes("visits")]


class Base(orm.DeclarativeBase):
    pass


TAGGED = sa.Table(
    "tagged",
    Base.metadata,
    sa.Column("book_id", sa.ForeignKey("book.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("tag_id", sa.ForeignKey("tag.id"), primary_key=True),
)


class Author(Base):
    __tablename__ = "author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(40), unique=True)
    # A circle: the key comes behind both tables, and the column is written behind both rows.
    best_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("book.id", name="author_best", use_alter=True))
    best: orm.Mapped["Book | None"] = orm.relationship(foreign_keys=best_id, post_update=True)
    books: orm.Mapped[list["Book"]] = orm.relationship(back_populates="author", foreign_keys="Book.author_id", order_by="Book.title", cascade="all, delete-orphan", passive_deletes=True)


class Book(Base):
    __tablename__ = "book"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str]
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("author.id", ondelete="CASCADE"), index=True)
    part_of: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("book.id", ondelete="SET NULL", deferrable=True, initially="DEFERRED"))
    author: orm.Mapped[Author] = orm.relationship(back_populates="books", foreign_keys=author_id)
    tags: orm.Mapped[list["Tag"]] = orm.relationship(secondary=TAGGED, back_populates="books")


class Tag(Base):
    __tablename__ = "tag"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    word: orm.Mapped[str] = orm.mapped_column(unique=True)
    books: orm.Mapped[list[Book]] = orm.relationship(secondary=TAGGED, back_populates="tags")


def violated(statement):
    """The constraint that a statement violates, and of which table it is."""
    try:
        with ENGINE.begin() as c:
            c.execute(statement)
    except sa.exc.IntegrityError as error:
        assert error.orig.sqlstate == "23503", error
        return error.orig.diag.table_name, error.orig.diag.constraint_name
    return None


def relationships():
    Base.metadata.create_all(ENGINE)
    with orm.Session(ENGINE) as session:
        first, second = Book(title="one"), Book(title="two")
        ann = Author(name="ann", books=[first, second], best=second)
        bob = Author(name="bob", books=[Book(title="three")])
        first.tags = [Tag(word="red"), Tag(word="old")]
        second.tags = [first.tags[0]]
        session.add_all([ann, bob])
        session.flush()
        second.part_of = first.id
        session.commit()
        assert [book.title for book in session.get(Author, ann.id).books] == ["one", "two"] and ann.best is second
    by_tag = sa.select(Book.title).join(Book.tags).where(Tag.word == "red").order_by(Book.title)
    with orm.Session(ENGINE) as session:
        assert session.scalars(by_tag).all() == ["one", "two"]
        loaded = session.scalars(sa.select(Author).options(orm.selectinload(Author.books)).order_by(Author.id)).all()
        assert [(author.name, len(author.books)) for author in loaded] == [("ann", 2), ("bob", 1)]
    assert violated(sa.insert(Book).values(title="none", author_id=99)) == ("book", "book_author_id_fkey")
    assert violated(sa.delete(Tag).where(Tag.word == "old")) == ("tagged", "tagged_tag_id_fkey")
    assert violated(sa.delete(Book).where(Book.title == "two")) == ("author", "author_best")
    # Kept until COMMIT.
    late = sa.update(Book).where(Book.title == "three").values(part_of=77)
    assert violated(late) == ("book", "book_part_of_fkey")
    with ENGINE.begin() as c:
        c.execute(late)
        bob_id = c.execute(sa.select(Author.id).where(Author.name == "bob")).scalar()
        c.execute(sa.insert(Book).values(id=77, title="all", author_id=bob_id))
    with orm.Session(ENGINE) as session:
        bob = session.scalars(sa.select(Author).where(Author.name == "bob")).one()
        bob.books.remove(session.get(Book, 77))
        session.commit()
        assert session.scalars(sa.select(Book.part_of).where(Book.title == "three")).one() is None
        ann = session.scalars(sa.select(Author).where(Author.name == "ann")).one()
        ann.best = None
        session.delete(ann)
        session.commit()
        assert session.scalars(sa.select(Book.title)).all() == ["three"]
        assert session.scalar(sa.select(sa.func.count()).select_from(TAGGED)) == 0
    inspector = sa.inspect(ENGINE)
    found = {key["name"]: key for key in inspector.get_foreign_keys("book")}
    assert {name: (key["constrained_columns"], key["referred_table"], key["referred_columns"], key["options"]) for name, key in found.items()} == {
        "book_author_id_fkey": (["author_id"], "author", ["id"], {"ondelete": "CASCADE"}),
        "book_part_of_fkey": (["part_of"], "book", ["id"], {"ondelete": "SET NULL", "deferrable": True, "initially": "DEFERRED"}),
    }, found
    assert [index["name"] for index in inspector.get_indexes("book")] == ["ix_book_author_id"]
    reflected = sa.MetaData()
    reflected.reflect(ENGINE, only=["author", "book", "tag", "tagged"])
    of_tagged = reflected.tables["tagged"].foreign_keys
    assert sorted(key.target_fullname for key in of_tagged) == ["book.id", "tag.id"], of_tagged
    Base.metadata.drop_all(ENGINE)
    assert not {"author", "book", "tag", "tagged"} & set(sa.inspect(ENGINE).get_table_names())


def keys_over_schemas():
    with ENGINE.begin() as c:
        c.execute(sa.schema.CreateSchema("crm"))
    meta = sa.MetaData(schema="crm")
    people = sa.Table("people", meta, sa.Column("id", sa.Integer, primary_key=True))
    sa.Table("calls", meta, sa.Column("id", sa.Integer, primary_key=True), sa.Column("person", sa.ForeignKey("crm.people.id")))
    bills = sa.Table("bills", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("person", sa.ForeignKey(people.c.id)))
    meta.create_all(ENGINE)
    bills.create(ENGINE)
    assert violated(sa.insert(bills).values(person=5)) == ("bills", "bills_person_fkey")
    for schema, table in [("crm", "calls"), (None, "bills")]:
        (key,) = sa.inspect(ENGINE).get_foreign_keys(table, schema=schema)
        assert (key["referred_schema"], key["referred_table"], key["name"]) == ("crm", "people", f"{table}_person_fkey"), key
    with ENGINE.begin() as c:
        c.execute(sa.schema.DropSchema("crm", cascade=True))
    assert sa.inspect(ENGINE).get_foreign_keys("bills") == []
    bills.drop(ENGINE)


def frames():
    frame = pd.DataFrame({"a": [1, 2, 2], "b": ["x", None, "z"], "f": [1.5, 2.5, None], "d": pd.to_datetime(["2026-01-01"] * 3)})
    frame.to_sql("frame", ENGINE, index=False)
    frame.to_sql("frame", ENGINE, index=False, if_exists="append")
    read = pd.read_sql_table("frame", ENGINE).sort_values(["a", "f"])
    assert len(read) == 6 and read["a"].tolist() == [1, 1, 2, 2, 2, 2] and read["d"].dt.year.eq(2026).all(), read
    # if_exists="replace" drops and makes a table of one name in one transaction, which is refused.
    with ENGINE.begin() as c:
        c.execute(sa.text("DROP TABLE frame"))
    frame.to_sql("frame", ENGINE, index=False)
    assert pd.read_sql("SELECT count(*) AS n, sum(a) AS s FROM frame", ENGINE).iloc[0].tolist() == [3, 5]


async def pool():
    pool = await asyncpg.create_pool(f"postgresql://tarn@127.0.0.1:{PORT}/tarn", min_size=1, max_size=3)
    for _ in range(3):
        async with pool.acquire() as c:
            assert await c.fetchval("SELECT 1") == 1
    async with pool.acquire() as c:
        found = await c.fetch("SELECT id FROM items WHERE id > $1 ORDER BY id LIMIT $2", 10, 2)
        assert [row["id"] for row in found] == [11, 12]
        asked = [
            ("SELECT data ->> 'a' FROM docs WHERE data @> $1", '{"tags": ["r"]}'),
            ("SELECT data -> 'a' ->> 'b' FROM docs WHERE data ? $1", "tags"),
            ("SELECT data #>> $1 FROM docs WHERE id = 1", ["tags", "-1"]),
        ]
        assert [await c.fetchval(sql, of) for sql, of in asked] == ['{"b": "x", "n": 5}', "x", "s"]
        key = uuid.uuid4()
        async with c.transaction():
            async with c.transaction():
                assert await c.fetchval("INSERT INTO items (id, u) VALUES ($1, $2) RETURNING u", 2000, key) == key
        assert await c.fetchval("SELECT at FROM items WHERE id = 1") == NOON
    await pool.close()


core()
reflection()
schemas()
documents()
arrays()
indexes()
relationships()
keys_over_schemas()
frames()
asyncio.run(pool())
print("SQLAlchemy, pandas and asyncpg: as expected")

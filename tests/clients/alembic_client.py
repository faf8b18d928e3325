"""Does Alembic work? On psycopg2: an environment, revisions written by comparing models with the database, upgrade, downgrade, and SQL alone."""

import contextlib
import io
import os
import pathlib

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.dialects.postgresql import JSONB, UUID

from steps import DATABASE, HOST, IS_POSTGRES, PORT, USER, waits_for

FOLDER = pathlib.Path(os.environ["TARN_TEST_DIR"]) / "alembic"
ENGINE = sa.create_engine(f"postgresql+psycopg2://{USER}@{HOST}:{PORT}/{DATABASE}")

META = sa.MetaData()
ACCOUNT = sa.Table(
    "account",
    META,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("name", sa.String(50), nullable=False),
    sa.Column("town", sa.String(50), index=True),
    sa.Column("key", UUID(as_uuid=True)),
    sa.Column("data", JSONB),
    sa.Column("joined", sa.DateTime(timezone=True), server_default=sa.func.now()),
    sa.Column("paid", sa.Numeric(10, 2), server_default="0"),
)

# The body of a revision: rows are written before and behind what is altered.
BODY = """op.create_table('seen', sa.Column('id', sa.Integer, primary_key=True), sa.Column('reason', sa.Text))
    op.execute("INSERT INTO seen VALUES (1, 'first')")
    op.add_column('seen', sa.Column('at', sa.Integer))
    op.alter_column('seen', 'reason', new_column_name='why', nullable=False)
    op.rename_table('seen', 'kept')
    op.execute("UPDATE kept SET at = 1")
    op.add_column('account', sa.Column('level', sa.BigInteger))
    op.execute("UPDATE account SET level = id")
    op.alter_column('account', 'level', nullable=False, server_default='0')
    assert [column['name'] for column in sa.inspect(op.get_bind()).get_columns('account')][-1] == 'level'
    op.execute("SELECT 1 / 0")
"""

# What `alembic init` writes, with the models of this file.
ENV = """
from alembic import context
config = context.config
options = dict(target_metadata=config.attributes["metadata"])
if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True, **options)
    with context.begin_transaction():
        context.run_migrations()
else:
    with config.attributes["engine"].connect() as connection:
        context.configure(connection=connection, transaction_per_migration=True, **options)
        with context.begin_transaction():
            context.run_migrations()
"""


def config():
    made = Config(str(FOLDER.parent / "alembic.ini"), stdout=io.StringIO(), output_buffer=io.StringIO())
    made.set_main_option("script_location", str(FOLDER))
    made.attributes.update(metadata=META, engine=ENGINE)
    return made


def columns(table):
    return [column["name"] for column in sa.inspect(ENGINE).get_columns(table)]


def begin():
    command.init(config(), str(FOLDER))
    (FOLDER / "env.py").write_text(ENV)
    command.revision(config(), "begin", autogenerate=True, rev_id="1")
    text = next((FOLDER / "versions").glob("1_*.py")).read_text()
    assert "op.create_table('account'" in text and "op.drop_table('account')" in text, text
    command.upgrade(config(), "head")
    assert columns("account") == ["id", "name", "town", "key", "data", "joined", "paid"]
    with ENGINE.begin() as c:
        assert c.execute(sa.insert(ACCOUNT).returning(ACCOUNT.c.id), {"name": "ada", "data": {"a": 1}}).scalar() == 1
        assert c.execute(sa.select(ACCOUNT.c.paid)).scalar() == 0 and c.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "1"
    told = config()
    command.current(told)
    assert "1 (head)" in told.stdout.getvalue()


def compare():
    """Nothing is found to be done, and what changed is found."""
    with ENGINE.connect() as c:
        assert compare_metadata(MigrationContext.configure(c, opts={"compare_type": True}), META) == []
        # With defaults: that the column is an identity is not told to SQLAlchemy yet, which reads its sequence in a correlated subquery.
        told = compare_metadata(MigrationContext.configure(c, opts={"compare_server_default": True}), META)
        assert [change[0][0] for change in told] == ([] if IS_POSTGRES else ["modify_default"]), told
    command.check(config())
    sa.Table("note", META, sa.Column("id", sa.Integer, primary_key=True), sa.Column("text", sa.Text))
    command.revision(config(), "notes", autogenerate=True, rev_id="2")
    text = next((FOLDER / "versions").glob("2_*.py")).read_text()
    assert "op.create_table('note'" in text and "account" not in text, text
    # Behind the first revision Alembic changes the key of its own table: UPDATE alembic_version SET version_num = '2' WHERE version_num = '1'.
    command.upgrade(config(), "+1")
    assert columns("note") == ["id", "text"]
    command.downgrade(config(), "-1")
    assert not sa.inspect(ENGINE).has_table("note") and sa.inspect(ENGINE).has_table("account")


def offline():
    told = config()
    command.upgrade(told, "1", sql=True)
    text = told.output_buffer.getvalue()
    assert "CREATE TABLE account" in text and "INSERT INTO alembic_version" in text, text
    # Into another database, as an administrator would run it: here, after what is there is gone.
    command.downgrade(config(), "base")
    assert not sa.inspect(ENGINE).has_table("account")
    with ENGINE.begin() as c:
        c.execute(sa.text("DROP TABLE alembic_version"))
    with ENGINE.connect() as c:
        c.connection.driver_connection.cursor().execute(text)
    assert columns("account")


def alter():
    """What a migration's body may say, each in a transaction, and all of it in a revision."""

    def change(does):
        with ENGINE.begin() as c:
            does(Operations(MigrationContext.configure(c, opts={"transactional_ddl": True})))

    change(lambda op: op.create_table("note", sa.Column("id", sa.Integer, primary_key=True), sa.Column("text", sa.Text)))
    change(lambda op: op.add_column("account", sa.Column("stars", sa.Integer)))
    change(lambda op: op.alter_column("account", "stars", server_default="3"))
    change(lambda op: op.alter_column("account", "name", type_=sa.String(200), nullable=True))
    change(lambda op: op.create_check_constraint("few", "account", "stars < 100"))
    change(lambda op: op.bulk_insert(ACCOUNT, [{"name": "bob"}, {"name": "cleo"}]))
    change(lambda op: op.execute("UPDATE account SET stars = 5 WHERE name = 'bob'"))
    change(lambda op: op.drop_constraint("few", "account"))
    change(lambda op: op.rename_table("note", "remark"))
    change(lambda op: op.alter_column("account", "paid", new_column_name="spent"))
    assert {"account", "remark"} <= set(sa.inspect(ENGINE).get_table_names()) and "stars" in columns("account")
    change(lambda op: op.add_column("account", sa.Column("n", sa.Integer, nullable=False, server_default="7")))
    change(lambda op: op.drop_column("account", "key"))

    def retype(op):
        op.alter_column("account", "stars", type_=sa.Text, postgresql_using="stars::text")

    with waits_for("ALTER COLUMN … TYPE inside a transaction", "0A000"):
        change(retype)
    with ENGINE.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        retype(Operations(MigrationContext.configure(c)))
    with ENGINE.connect() as c:
        assert c.execute(sa.text("SELECT DISTINCT n FROM account")).all() == [(7,)]
    assert "n" in columns("account") and "key" not in columns("account")
    # A revision is a transaction, with the change of `alembic_version` in it.
    command.revision(config(), "many", rev_id="3", head="1", splice=True)
    path = next((FOLDER / "versions").glob("3_*.py"))
    path.write_text(path.read_text().replace("pass", BODY, 1))
    with contextlib.suppress(sa.exc.DataError):
        command.upgrade(config(), "3")
    version = sa.text("SELECT string_agg(version_num, ' ') FROM alembic_version")
    with ENGINE.connect() as c:
        assert c.execute(version).scalar() == "1" and "level" not in columns("account") and not sa.inspect(ENGINE).has_table("kept")
    path.write_text(path.read_text().replace("1 / 0", "1 / 1", 1))
    command.upgrade(config(), "3")
    with ENGINE.connect() as c:
        assert c.execute(version).scalar() == "3"
        assert c.execute(sa.text("SELECT count(*) FROM account WHERE level = id")).scalar() == 2 and columns("kept") == ["id", "why", "at"]
        assert c.execute(sa.text("SELECT why, at FROM kept")).all() == [("first", 1)]
    change(lambda op: op.create_unique_constraint("one", "account", ["name"]))
    assert [unique["name"] for unique in sa.inspect(ENGINE).get_unique_constraints("account")] == ["one"]
    change(lambda op: op.drop_constraint("one", "account"))
    change(lambda op: op.create_index("by_name", "account", ["name", sa.text("joined DESC")]))
    change(lambda op: op.create_index("by_name_like", "account", ["name"], postgresql_ops={"name": "varchar_pattern_ops"}))
    found = {index["name"]: (index["column_names"], index["unique"]) for index in sa.inspect(ENGINE).get_indexes("account")}
    assert found == {"by_name": (["name", "joined"], False), "by_name_like": (["name"], False), "ix_account_town": (["town"], False)}, found
    change(lambda op: op.drop_index("by_name_like", "account"))
    change(lambda op: op.drop_index("by_name", "account"))
    assert [index["name"] for index in sa.inspect(ENGINE).get_indexes("account")] == ["ix_account_town"]
    change(lambda op: op.create_foreign_key("of", "remark", "account", ["id"], ["id"], ondelete="CASCADE", deferrable=True, initially="DEFERRED"))
    (key,) = sa.inspect(ENGINE).get_foreign_keys("remark")
    assert (key["name"], key["referred_table"], key["constrained_columns"], key["referred_columns"]) == ("of", "account", ["id"], ["id"]), key
    assert key["options"] == {"ondelete": "CASCADE", "deferrable": True, "initially": "DEFERRED"}, key
    change(lambda op: op.drop_constraint("of", "remark"))


for part in (begin, compare, offline, alter):
    part()
    print(f"{part.__name__}: passed", flush=True)

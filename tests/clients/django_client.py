"""Does Django work? Migrations made and run, the ORM (UUID keys, JSON, arrays, relations), transactions in each other, times in three zones, inspectdb."""

import contextlib
import datetime as dt
import decimal
import io
import os
import pathlib
import sys
import uuid
import zoneinfo

import django
from django.conf import settings

from steps import DATABASE, HOST, IS_POSTGRES, PORT, USER, refused

# Migrations are made where the test may write.
FOLDER = pathlib.Path(os.environ["TARN_TEST_DIR"])
(FOLDER / "shop_migrations").mkdir()
(FOLDER / "shop_migrations" / "__init__.py").touch()
sys.path.insert(0, str(FOLDER))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
SERVER = {"ENGINE": "django.db.backends.postgresql", "HOST": HOST, "PORT": PORT, "USER": USER, "NAME": DATABASE}
settings.configure(
    DATABASES={"default": SERVER},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "django.contrib.postgres", "shop"],
    MIGRATION_MODULES={"shop": "shop_migrations"},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    SECRET_KEY="of the test alone",
    USE_TZ=True,
    TIME_ZONE="Europe/Zurich",
)
django.setup()

from django.contrib.auth import authenticate  # noqa: E402
from django.contrib.auth.models import Group, Permission, User  # noqa: E402
from django.contrib.postgres.fields import ArrayField  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, migrations, models, transaction  # noqa: E402
from django.db.models import Avg, Count, F, Max, Q, Sum  # noqa: E402
from django.db.models.functions import Lower, TruncDay, TruncHour  # noqa: E402
from django.utils import timezone  # noqa: E402
from shop.models import Shop, Visit  # noqa: E402

NOON = dt.datetime(2026, 7, 1, 12, 0, 0, 250, tzinfo=dt.timezone(dt.timedelta(hours=2)))


def told(*command, **options):
    """What a command of manage.py prints."""
    out = io.StringIO()
    call_command(*command, stdout=out, **options)
    return out.getvalue()


def begin():
    told("makemigrations", "shop", verbosity=0)
    told("migrate", "shop", verbosity=0)
    assert "[X] 0001_initial" in told("showmigrations", "shop")
    assert told("makemigrations", "shop", check_changes=True) == "No changes detected in app 'shop'\n"
    assert {"shop_shop", "shop_visit", "django_migrations"} <= set(connection.introspection.table_names())


def indexes(table):
    """The statement that makes each index of a table."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = %s", [table])
        return dict(cursor.fetchall())


def orm():
    here = Shop.objects.create(name="Here", opened=NOON, day=dt.date(2026, 2, 28), rent=decimal.Decimal("12.50"))
    read = Shop.objects.get(pk=here.pk)
    assert (read.opened, read.day, read.rent, read.data) == (NOON, here.day, here.rent, {}), vars(read)
    many = Shop.objects.bulk_create([Shop(name=f"Shop {n:03}", opened=NOON + dt.timedelta(days=n), rent=n) for n in range(500)], batch_size=200)
    assert Shop.objects.count() == 501 and isinstance(many[0].pk, uuid.UUID)
    visits = Visit.objects.bulk_create([Visit(shop=shop, seconds=n, note=None if n % 2 else "x") for shop in many[:50] for n in range(4)])
    assert len({visit.pk for visit in visits}) == 200 and Visit.objects.count() == 200
    one = Visit.objects.create(shop=here, seconds=1.5, raw=b"\x00\xff")
    one.refresh_from_db()
    assert (bytes(one.raw), one.seconds) == (b"\x00\xff", 1.5)

    # Pages, conditions, what is computed.
    assert [shop.name for shop in Shop.objects.all()[10:12]] == ["Shop 009", "Shop 010"]
    assert Shop.objects.filter(Q(name__startswith="Shop 00") & ~Q(name__endswith="3") | Q(pk=here.pk)).count() == 10
    assert Shop.objects.filter(name__icontains="ER").get() == here and Shop.objects.filter(name__iexact="HERE").exists()
    assert Shop.objects.filter(name__regex=r"^Shop \d{2}7$").count() == 50 and Shop.objects.filter(pk__in=[shop.pk for shop in many[:3]]).count() == 3
    assert Shop.objects.filter(rent__range=(10, 12)).count() == 3 and Shop.objects.filter(day__isnull=True).count() == 500
    assert Shop.objects.aggregate(Sum("rent"), Max("opened"), Avg("rent"))["rent__sum"] == decimal.Decimal("124762.50")
    busy = Shop.objects.annotate(n=Count("visits"), longest=Max("visits__seconds")).filter(n__gt=1).order_by("-name")
    assert (len(busy), busy[0].name, busy[0].n, busy[0].longest) == (50, "Shop 049", 4, 3.0)
    assert Visit.objects.filter(shop__name="Shop 007", seconds__gte=2).select_related("shop").first().shop.name == "Shop 007"
    assert sum(len(shop.visits.all()) for shop in Shop.objects.prefetch_related("visits")) == 201
    assert list(Visit.objects.values("note").annotate(n=Count("id")).order_by("note").values_list("note", "n")) == [("x", 100), (None, 101)]
    assert Shop.objects.order_by(Lower("name").desc()).values_list("name", flat=True)[0] == "Shop 499"
    assert Shop.objects.filter(models.Exists(Visit.objects.filter(shop=models.OuterRef("pk")))).count() == 51
    newest = Visit.objects.filter(shop=models.OuterRef("pk")).order_by("-seconds").values("seconds")[:1]
    assert Shop.objects.annotate(newest=models.Subquery(newest)).get(name="Shop 001").newest == 3.0
    assert len(list(Shop.objects.iterator(chunk_size=100))) == 501
    assert Shop.objects.filter(name="Here").union(Shop.objects.filter(name="Shop 001")).count() == 2
    assert "shop_shop" in Shop.objects.filter(pk=here.pk).explain()

    # Changes.
    assert Shop.objects.filter(name__startswith="Shop 1").update(rent=F("rent") + 1, day=dt.date(2026, 1, 1)) == 100
    here.name = "There"
    here.save(update_fields=["name"])
    for shop in many[:20]:
        shop.is_open = False
    assert Shop.objects.bulk_update(many[:20], ["is_open"]) == 20 and Shop.objects.filter(is_open=False).count() == 20
    assert [made for _, made in (Shop.objects.get_or_create(name="There", defaults={"opened": NOON}) for _ in range(2))] == [False, False]
    assert Shop.objects.update_or_create(name="Nowhere", defaults={"opened": NOON, "rent": 3})[1]
    upserted = Shop(pk=here.pk, name="Again", opened=NOON)
    Shop.objects.bulk_create([upserted], update_conflicts=True, unique_fields=["id"], update_fields=["name"])
    assert Shop.objects.get(pk=here.pk).name == "Again" and Shop.objects.get(pk=here.pk).rent == decimal.Decimal("12.50")
    Shop.objects.bulk_create([upserted], ignore_conflicts=True)
    assert Shop.objects.get(name="Shop 003").delete() == (5, {"shop.Visit": 4, "shop.Shop": 1})


def documents():
    data = {"a": {"b": "x", "n": 5}, "tags": ["r", "s"], "none": None}
    shop = Shop.objects.create(name="Json", opened=NOON, data=data)
    assert Shop.objects.get(pk=shop.pk).data == data
    only = Shop.objects.filter(name="Json")
    found = [
        {"data__a__b": "x"}, {"data__a__n": 5}, {"data__a__n__gt": 4}, {"data__contains": {"tags": ["s"]}}, {"data__has_key": "a"},
        {"data__has_any_keys": ["z", "tags"]}, {"data__has_keys": ["a", "tags"]}, {"data__tags__0": "r"}, {"data__none": None}, {"data": data},
        {"data__a__b__icontains": "X"}, {"data__z__isnull": True}, {"data__a__isnull": False},
    ]  # fmt: skip
    for condition in found:
        assert only.filter(**condition).count() == 1, condition
    assert only.filter(data__a__b="y").count() == 0 and only.exclude(data__has_key="z").count() == 1
    assert only.values_list("data__a__b", "data__tags__1").get() == ("x", "s")
    assert [next(only.iterator()).data, only.order_by("data__a__n").first().data] == [data, data]


def transactions():
    class Undone(Exception):
        pass

    with contextlib.suppress(Undone), transaction.atomic():
        Shop.objects.create(name="Never", opened=NOON)
        assert Shop.objects.filter(name="Never").exists()
        raise Undone
    assert not Shop.objects.filter(name="Never").exists()
    done = []
    with transaction.atomic():
        outer = Shop.objects.create(name="Outer", opened=NOON)
        with contextlib.suppress(Undone), transaction.atomic():
            Shop.objects.create(name="Inner", opened=NOON)
            raise Undone
        try:
            with transaction.atomic():
                Shop.objects.create(pk=outer.pk, name="Twice", opened=NOON)
            raise AssertionError("a key was inserted twice")
        except IntegrityError as error:
            assert error.__cause__.sqlstate == "23505", error
        locked = Shop.objects.select_for_update().get(pk=outer.pk)
        locked.rent = 7
        locked.save()
        transaction.on_commit(lambda: done.append(Shop.objects.get(pk=outer.pk).rent))
    assert done == [7] and not Shop.objects.filter(name="Inner").exists()
    with connection.cursor() as cursor:
        refused("42P01", lambda: cursor.execute("SELECT * FROM nothing"))
        refused("22001", lambda: Shop.objects.create(name="x" * 81, opened=NOON))
        cursor.execute("SELECT name, rent FROM shop_shop WHERE id = %s", [outer.pk])
        assert cursor.fetchone() == ("Outer", 7)


def zones():
    """One moment, looked at from three places."""
    shop = Shop.objects.create(name="Late", opened=dt.datetime(2026, 7, 1, 23, 30, tzinfo=dt.timezone.utc))
    late = Shop.objects.filter(name="Late")
    for name, day, hour in [("UTC", 1, 23), ("Europe/Zurich", 2, 1), ("America/New_York", 1, 19)]:
        zone = zoneinfo.ZoneInfo(name)
        with timezone.override(zone):
            assert late.get().opened == shop.opened
            assert late.filter(opened__date=dt.date(2026, 7, day), opened__hour=hour).count() == 1, name
            assert late.annotate(d=TruncDay("opened"), h=TruncHour("opened")).values_list("d", "h").get() == (
                dt.datetime(2026, 7, day, tzinfo=zone),
                dt.datetime(2026, 7, day, hour, tzinfo=zone),
            )
            assert list(late.dates("opened", "month")) == [dt.date(2026, 7, 1)]
            assert list(late.datetimes("opened", "day")) == [dt.datetime(2026, 7, day, tzinfo=zone)]
    assert abs(Visit.objects.latest("at").at - timezone.now()) < dt.timedelta(minutes=5)


def durations(change):
    """DurationField: a column that comes later, what is computed with it, and by what it is found."""
    hour, longest = dt.timedelta(hours=1), dt.timedelta(days=40, seconds=-3, microseconds=7)
    fields = {"name": models.CharField(max_length=9), "took": models.DurationField(null=True)}
    change(migrations.AddField("Visit", "took", models.DurationField(null=True)))
    change(migrations.AddField("Visit", "waited", models.DurationField(default=hour)))
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT took, waited FROM shop_visit")
        assert cursor.fetchall() == [(None, hour)]
    change(migrations.CreateModel("Trip", [("id", models.AutoField(primary_key=True)), *((name, field.clone()) for name, field in fields.items())]))
    Trip = type("Trip", (models.Model,), {**fields, "__module__": "shop.models", "Meta": type("Meta", (), {"app_label": "shop"}), "id": models.AutoField(primary_key=True)})
    Trip.objects.bulk_create([Trip(name=f"t{n}", took=n * hour) for n in range(48)])
    Trip.objects.bulk_create([Trip(name="longest", took=longest), Trip(name="first")])
    assert Trip.objects.get(name="longest").took == longest and Trip.objects.get(name="first").took is None
    assert Trip.objects.filter(took__gt=dt.timedelta(days=1)).count() == 24 and Trip.objects.get(took=3 * hour).name == "t3"
    assert Trip.objects.aggregate(Sum("took"), Max("took")) == {"took__sum": 1128 * hour + longest, "took__max": longest}
    assert Trip.objects.filter(name="t5").update(took=F("took") * 2 + hour) == 1 and Trip.objects.get(name="t5").took == 11 * hour
    ends = models.ExpressionWrapper(models.Value(NOON, models.DateTimeField()) + F("took"), models.DateTimeField())
    assert Trip.objects.annotate(ends=ends).get(name="t7").ends == NOON + 7 * hour
    assert Trip.objects.order_by("-took").exclude(took=None).first().name == "longest"
    change(migrations.RunSQL("DROP TABLE shop_trip"))


def addresses(change):
    """GenericIPAddressField: a column that comes later, and by what it is found."""
    change(migrations.AddField("Visit", "source", models.GenericIPAddressField(null=True)))
    change(migrations.CreateModel("Host", [("id", models.AutoField(primary_key=True)), ("ip", models.GenericIPAddressField())]))
    Host = type("Host", (models.Model,), {"__module__": "shop.models", "Meta": type("Meta", (), {"app_label": "shop"}), "id": models.AutoField(primary_key=True), "ip": models.GenericIPAddressField()})
    Host.objects.bulk_create([Host(ip=f"10.0.0.{n}") for n in range(20)] + [Host(ip="::ffff:10.0.0.1"), Host(ip="FE80::1")])
    assert Host.objects.get(ip="10.0.0.7").ip == "10.0.0.7" and Host.objects.filter(ip__in=["10.0.0.1", "fe80::1", "1.1.1.1"]).count() == 2
    assert Host.objects.filter(ip__gt="10.0.0.17").order_by("-ip").first().ip == "fe80::1"
    assert Host.objects.filter(ip__startswith="10.0.0.1").count() == 11 and Host.objects.filter(ip__contains="ffff").count() == 1
    assert Host.objects.filter(ip="10.0.0.3").update(ip="192.168.1.1") == 1 and Host.objects.aggregate(Max("ip"))["ip__max"] == "fe80::1"
    change(migrations.RunSQL("DROP TABLE shop_host"))


def migrate():
    """Schema changes by Django's own editor, as migrations make them: each migration is a transaction."""

    def change(*operations, atomic=True):
        """Runs operations as one migration."""
        before = migrations.state.ProjectState.from_apps(django.apps.apps)
        with connection.schema_editor(atomic=atomic) as editor:
            for operation in operations:
                after = before.clone()
                operation.state_forwards("shop", after)
                operation.database_forwards("shop", editor, before, after)
                before = after

    def columns(table):
        return {column.name for column in connection.introspection.get_table_description(connection.cursor(), table)}

    change(migrations.AddField("Visit", "stars", models.IntegerField(null=True)), atomic=False)
    change(migrations.AddField("Visit", "moons", models.IntegerField(null=True)))
    assert {"stars", "moons", "shop_id"} <= columns("shop_visit"), columns("shop_visit")
    # Rows that a migration writes before and behind what it alters, and what it looks up between the two.
    n_visits = Visit.objects.count()

    def fill(apps, editor):
        visits = apps.get_model("shop", "Visit").objects
        assert {"suns"} <= columns("shop_visit") and visits.filter(suns=None).count() == n_visits
        visits.update(suns=F("id") + 1)

    change(
        migrations.AddField("Visit", "suns", models.BigIntegerField(null=True)),
        migrations.RunPython(fill),
        migrations.AlterField("Visit", "suns", models.BigIntegerField()),
        migrations.RenameField("Visit", "suns", "light"),
        migrations.CreateModel("Sky", [("id", models.AutoField(primary_key=True)), ("n", models.IntegerField(null=True))]),
        migrations.AddField("Sky", "colour", models.CharField(max_length=9, null=True)),
        migrations.RunPython(lambda apps, editor: apps.get_model("shop", "Sky").objects.create(n=1, colour="blue")),
        migrations.RenameModel("Sky", "Heaven"),
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM shop_visit WHERE light = id + 1")
        assert cursor.fetchone() == (n_visits,)
        cursor.execute("SELECT n, colour FROM shop_heaven")
        assert cursor.fetchall() == [(1, "blue")]
        refused("23502", lambda: cursor.execute("UPDATE shop_visit SET light = NULL"))

    # One that fails leaves nothing behind.
    class Wrong(Exception):
        pass

    def fail(apps, editor):
        raise Wrong

    with contextlib.suppress(Wrong):
        change(
            migrations.AddField("Visit", "never", models.IntegerField(null=True)),
            migrations.RunSQL("UPDATE shop_visit SET light = 0, never = 1"),
            migrations.RunPython(fail),
        )
    assert "never" not in columns("shop_visit") and "light" in columns("shop_visit")
    change(migrations.RunSQL("ALTER TABLE shop_visit ALTER light DROP NOT NULL"), migrations.RunSQL("DROP TABLE shop_heaven"))
    change(migrations.AlterField("Shop", "name", models.CharField(max_length=200)))
    change(migrations.CreateModel("Extra", [("id", models.AutoField(primary_key=True)), ("n", models.PositiveIntegerField())]))
    with connection.cursor() as cursor:
        refused("23514", lambda: cursor.execute("INSERT INTO shop_extra (n) VALUES (-1)"))
    change(migrations.RunSQL("DROP TABLE shop_extra"))
    change(migrations.RemoveField("Visit", "note"))
    change(migrations.RenameField("Visit", "seconds", "lasted"))
    # The rows that are there keep the value; the default is Django's own afterwards.
    change(migrations.AddField("Visit", "kind", models.CharField(max_length=10, default="walk")))
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT kind FROM shop_visit")
        assert cursor.fetchall() in ([("walk",)], []), "older rows"
    durations(change)
    addresses(change)
    # A field of arrays: Django asks of it by <@, &&, @> and by its length.
    tags = ArrayField(models.CharField(max_length=20), default=list)
    change(migrations.CreateModel("Bag", [("id", models.AutoField(primary_key=True)), ("tags", tags), ("sizes", ArrayField(models.IntegerField(), null=True))]))
    Bag = type("Bag", (models.Model,), {"tags": tags.clone(), "sizes": ArrayField(models.IntegerField(), null=True), "__module__": "shop.models", "Meta": type("Meta", (), {"app_label": "shop"}), "id": models.AutoField(primary_key=True)})
    first = Bag.objects.create(tags=["red", "two words"], sizes=[1, 2])
    Bag.objects.bulk_create([Bag(tags=[]), Bag(tags=["blue"], sizes=[3])])
    of = lambda **asked: list(Bag.objects.filter(**asked).order_by("id").values_list("id", flat=True))  # noqa: E731
    assert Bag.objects.get(id=first.id).tags == ["red", "two words"]
    assert of(tags__contains=["red"]) == [first.id] and of(tags__overlap=["blue", "x"]) == [first.id + 2]
    assert of(tags__contained_by=["red", "blue", "two words"]) == [first.id, first.id + 1, first.id + 2]
    assert of(tags__len=2) == [first.id] and of(tags__0="blue") == [first.id + 2] and of(sizes=[1, 2]) == [first.id]
    Bag.objects.filter(id=first.id).update(tags=["new"])
    assert Bag.objects.get(id=first.id).tags == ["new"]
    change(migrations.RunSQL("DROP TABLE shop_bag"))

    def has_index(apps, editor):
        assert indexes("shop_visit")["visit_when"].endswith("USING btree (at DESC)"), indexes("shop_visit")

    change(
        migrations.AddIndex("Visit", models.Index(fields=["-at"], name="visit_at")),
        migrations.RenameIndex("Visit", new_name="visit_when", old_name="visit_at"),
        migrations.RunPython(has_index),
        migrations.RemoveIndex("Visit", "visit_when"),
    )
    change(migrations.AddIndex("Visit", models.Index(fields=["-at"], name="visit_at")))
    assert "visit_at" in indexes("shop_visit") and "visit_when" not in indexes("shop_visit")
    # A text that is unique has an index for LIKE beside its constraint, and so has one with an index.
    fields = {"code": models.CharField(max_length=10, unique=True), "town": models.CharField(max_length=20, db_index=True), "rank": models.IntegerField(db_index=True)}
    change(migrations.CreateModel("Owner", [("id", models.AutoField(primary_key=True)), *((name, field.clone()) for name, field in fields.items())]))
    defined = sorted(defined.split("btree ")[1] for defined in indexes("shop_owner").values())
    assert defined == ["(code varchar_pattern_ops)", "(code)", "(id)", "(rank)", "(town varchar_pattern_ops)", "(town)"], defined
    Owner = type("Owner", (models.Model,), {**fields, "__module__": "shop.models", "Meta": type("Meta", (), {"app_label": "shop"}), "id": models.AutoField(primary_key=True)})
    owner = Owner.objects.create(code="ada", town="Bern", rank=1)
    refused("23505", lambda: Owner.objects.create(code="ada", town="Basel", rank=1))
    assert Owner.objects.get_or_create(code="ada") == (owner, False)
    Owner.objects.bulk_create([Owner(code=f"o{n}", town=f"t{n % 10}", rank=n % 7) for n in range(300)])
    assert Owner.objects.filter(town="t3").count() == 30 and Owner.objects.filter(town__in=["Bern", "t4"], rank=1).count() == 5
    assert Owner.objects.filter(code__startswith="ad").get() == owner and Owner.objects.filter(rank=6).update(rank=1) == 42
    assert Owner.objects.filter(rank=6).count() == 0 and Owner.objects.filter(rank=1).count() == 86
    change(migrations.RunSQL("DROP TABLE shop_owner"))
    change(migrations.AddField("Visit", "owner", models.ForeignKey("shop.Shop", models.CASCADE, null=True, related_name="+")))
    change(migrations.RunSQL("ALTER TABLE shop_visit DROP COLUMN owner_id"))


def accounts():
    """What most projects begin with: users, groups, permissions, sessions. Their migrations make columns wider, each in a transaction."""
    told("migrate", "auth", verbosity=0)
    told("migrate", "sessions", verbosity=0)
    assert "[X] 0012_alter_user_first_name_max_length" in told("showmigrations", "auth")
    user = User.objects.create_user("ada", "ada@example.com", "a secret", first_name="A" * 150)
    assert authenticate(username="ada", password="a secret") == user and authenticate(username="ada", password="none") is None
    refused("23505", lambda: User.objects.create_user("ada"))
    group = Group.objects.create(name="readers")
    group.permissions.set(Permission.objects.filter(content_type__app_label="auth", codename__startswith="view_"))
    user.groups.add(group)
    user = User.objects.get(username="ada")
    assert user.has_perm("auth.view_user") and not user.has_perm("auth.delete_user")
    assert User.objects.filter(groups__permissions__codename="view_group").get() == user
    session = SessionStore()
    session["basket"] = [1, 2]
    session.create()
    assert SessionStore(session.session_key)["basket"] == [1, 2]
    assert user.delete()[1] == {"auth.User_groups": 1, "auth.User": 1}


def inspect():
    text = told("inspectdb", "shop_shop", "django_migrations")
    wanted = [
        "class ShopShop(models.Model):", "id = models.UUIDField(primary_key=True)", "name = models.CharField(max_length=200)",
        "opened = models.DateTimeField()", "day = models.DateField(blank=True, null=True)", "data = models.JSONField()",
        "rent = models.DecimalField(max_digits=10, decimal_places=2)", "class DjangoMigrations(models.Model):", "id = models.BigAutoField(primary_key=True)",
    ]  # fmt: skip
    assert all(line in text for line in wanted), text


def end():
    told("migrate", "shop", "zero", verbosity=0)
    assert "shop_shop" not in connection.introspection.table_names()


for part in (begin, orm, documents, transactions, zones, migrate, accounts, inspect, end):
    part()
    print(f"{part.__name__}: passed", flush=True)

// Does the Postgres JDBC driver work? Metadata calls, prepared statements of every common type, the old types of java.sql, arrays, generated
// keys, COPY, fetch size, batches, errors. run.py runs it with the driver of the system and with the newest one.

import java.io.ByteArrayOutputStream;
import java.io.StringReader;
import java.math.BigDecimal;
import java.sql.*;
import java.sql.Date;
import java.time.Instant;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TimeZone;
import java.util.UUID;
import org.postgresql.PGConnection;

public class Jdbc {
    static void check(String name, Object is, Object want) {
        if (!String.valueOf(is).equals(String.valueOf(want))) throw new AssertionError(name + ": " + is + ", want " + want);
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> values = new ArrayList<>();
        while (rows.next()) values.add(rows.getString(name));
        return values;
    }

    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + System.getenv("TARN_PORT") + "/tarn?user=tarn";
        try (Connection connection = DriverManager.getConnection(url)) {
            try (Statement statement = connection.createStatement()) {
                statement.executeUpdate("CREATE TABLE trips (city text, id bigint, fare decimal(10,2), at timestamptz, day date, tag uuid, ok boolean, "
                    + "ratio double precision, raw bytea, note text, PRIMARY KEY (city, id))");
            }
            prepared(connection);
            System.out.println("prepared: passed");
            metadata(connection);
            System.out.println("metadata: passed");
            fetchSize(connection);
            System.out.println("fetch size: passed");
            errors(connection);
            System.out.println("errors: passed");
            arrays(connection);
            System.out.println("arrays: passed");
            generatedKeys(connection);
            System.out.println("generated keys: passed");
            copy(connection);
            System.out.println("copy: passed");
        }
        // The driver sends the zone of the program's clocks with dates and times of java.sql.
        for (String zone : new String[] {"UTC", "Europe/Zurich", "America/New_York"}) {
            TimeZone.setDefault(TimeZone.getTimeZone(zone));
            for (String how : new String[] {"", "&prepareThreshold=-1"}) {
                try (Connection connection = DriverManager.getConnection(url + how)) {
                    oldDates(connection);
                }
            }
        }
        System.out.println("java.sql dates: passed");
        // Every parameter and result binary from the first execution on.
        try (Connection connection = DriverManager.getConnection(url + "&prepareThreshold=-1")) {
            read(connection, 1);
            System.out.println("binary: passed");
        }
    }

    static void prepared(Connection connection) throws SQLException {
        String sql = "INSERT INTO trips VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        try (PreparedStatement insert = connection.prepareStatement(sql)) {
            for (long id = 1; id <= 10; id++) { // the driver prepares on the server after five
                bind(insert, id);
                check("rows", insert.executeUpdate(), 1);
                read(connection, id);
            }
            for (long id = 11; id <= 500; id++) {
                bind(insert, id);
                insert.addBatch();
            }
            int sum = 0;
            for (int count : insert.executeBatch()) sum += count;
            check("batch", sum, 490);
        }
        try (PreparedStatement update = connection.prepareStatement("UPDATE trips SET fare = fare + ?, note = ? WHERE city = ? AND id = ?")) {
            update.setBigDecimal(1, new BigDecimal("0.50"));
            update.setNull(2, Types.VARCHAR);
            update.setString(3, "Bern");
            update.setLong(4, 7);
            check("update", update.executeUpdate(), 1);
        }
    }

    static void bind(PreparedStatement insert, long id) throws SQLException {
        insert.setString(1, "Bern");
        insert.setLong(2, id);
        insert.setBigDecimal(3, new BigDecimal("12.50"));
        insert.setObject(4, OffsetDateTime.of(2026, 11, 1, 8, 0, 0, 0, ZoneOffset.UTC));
        insert.setObject(5, LocalDate.of(2026, 11, 1));
        insert.setObject(6, UUID.fromString("12345678-1234-5678-1234-567812345678"));
        insert.setBoolean(7, id % 2 == 0);
        insert.setDouble(8, id / 4.0);
        insert.setBytes(9, new byte[] {0, (byte) id, -1});
        insert.setString(10, "note " + id);
    }

    static void read(Connection connection, long id) throws SQLException {
        try (PreparedStatement select = connection.prepareStatement("SELECT * FROM trips WHERE city = ? AND id = ?")) {
            select.setString(1, "Bern");
            select.setLong(2, id);
            try (ResultSet row = select.executeQuery()) {
                check("a row", row.next(), true);
                check("fare", row.getBigDecimal("fare"), "12.50");
                check("at", row.getObject("at", OffsetDateTime.class).toInstant(), "2026-11-01T08:00:00Z");
                check("day", row.getObject("day", LocalDate.class), "2026-11-01");
                check("tag", row.getString("tag"), "12345678-1234-5678-1234-567812345678");
                check("ok", row.getBoolean("ok"), id % 2 == 0);
                check("ratio", row.getDouble("ratio"), id / 4.0);
                check("raw", row.getBytes("raw").length, 3);
                check("note", row.getString("note"), "note " + id);
                check("one row", row.next(), false);
            }
        }
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        check("product", about.getDatabaseProductName(), "PostgreSQL");
        check("tables", column(about.getTables(null, "public", "tri%", new String[] {"TABLE"}), "TABLE_NAME"), "[trips]");
        List<String> columns = column(about.getColumns(null, "public", "trips", "%"), "COLUMN_NAME");
        check("columns", columns, "[city, id, fare, at, day, tag, ok, ratio, raw, note]");
        check("key", column(about.getPrimaryKeys(null, "public", "trips"), "COLUMN_NAME"), "[city, id]");
        if (!column(about.getSchemas(), "TABLE_SCHEM").contains("public")) throw new AssertionError("no schema public");
        check("types of columns", column(about.getColumns(null, "public", "trips", "%"), "TYPE_NAME"),
            "[text, int8, numeric, timestamptz, date, uuid, bool, float8, bytea, text]");
        check("index", column(about.getIndexInfo(null, "public", "trips", true, false), "COLUMN_NAME"), "[city, id]");
        if (!column(about.getTypeInfo(), "TYPE_NAME").containsAll(List.of("int4", "text", "timestamptz"))) throw new AssertionError("types are missing");
        if (!column(about.getCatalogs(), "TABLE_CAT").contains("tarn")) throw new AssertionError("no catalog tarn");
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SELECT fare, id FROM trips LIMIT 1")) {
            ResultSetMetaData result = rows.getMetaData();
            check("type of fare", result.getColumnTypeName(1), "numeric");
            check("type of id", result.getColumnTypeName(2), "int8");
        }
    }

    static void oldDates(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("DROP TABLE IF EXISTS old_dates");
            statement.execute("CREATE TABLE old_dates (id int PRIMARY KEY, d date, t time, ts timestamp, tz timestamptz)");
        }
        Date day = Date.valueOf("2026-03-29");
        Time time = Time.valueOf("08:09:10");
        Timestamp plain = Timestamp.valueOf("2026-11-22 23:30:00.125"), instant = Timestamp.from(Instant.parse("2026-07-01T10:00:00Z"));
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO old_dates VALUES (?, ?, ?, ?, ?)")) {
            insert.setInt(1, 1);
            insert.setDate(2, day);
            insert.setTime(3, time);
            insert.setTimestamp(4, plain);
            insert.setTimestamp(5, instant);
            check("old dates", insert.executeUpdate(), 1);
        }
        try (PreparedStatement select = connection.prepareStatement("SELECT * FROM old_dates WHERE d = ? AND tz = ? AND ts = ?")) {
            select.setDate(1, day);
            select.setTimestamp(2, instant);
            select.setTimestamp(3, plain);
            try (ResultSet row = select.executeQuery()) {
                check("a row of that day", row.next(), true);
                check("date", row.getDate("d"), day);
                check("time", row.getTime("t"), time);
                check("timestamp", row.getTimestamp("ts"), plain);
                check("instant", row.getTimestamp("tz").toInstant(), "2026-07-01T10:00:00Z");
            }
        }
    }

    static void arrays(Connection connection) throws SQLException {
        Object[][] cases = {{"bigint", new Object[] {7L, 2L, null}, "id"}, {"text", new Object[] {"note 7", "note 2"}, "note"}, {"date", new Object[] {LocalDate.of(2026, 11, 1)}, "day"}};
        for (Object[] pair : cases) {
            try (PreparedStatement select = connection.prepareStatement("SELECT count(*) FROM trips WHERE id IN (2, 8) AND " + pair[2] + " = ANY(?)")) {
                select.setArray(1, connection.createArrayOf((String) pair[0], (Object[]) pair[1]));
                try (ResultSet row = select.executeQuery()) {
                    row.next();
                    check("ANY of " + pair[0], row.getLong(1), pair[0].equals("date") ? 2 : 1);
                }
            }
        }
        try (PreparedStatement select = connection.prepareStatement("SELECT ?::int[] AS given, array_agg(id ORDER BY id) AS ids FROM trips WHERE id < 4")) {
            select.setArray(1, connection.createArrayOf("int4", new Object[] {1, null}));
            try (ResultSet row = select.executeQuery()) {
                row.next();
                check("given", Arrays.toString((Object[]) row.getArray("given").getArray()), "[1, null]");
                check("ids", Arrays.toString((Object[]) row.getArray("ids").getArray()), "[1, 2, 3]");
            }
        }
    }

    static void generatedKeys(Connection connection) throws SQLException {
        String sql = "INSERT INTO trips (city, id, note) VALUES ('Chur', ?, 'keyed')";
        try (PreparedStatement insert = connection.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
            insert.setLong(1, 1);
            check("insert", insert.executeUpdate(), 1);
            check("all of it", column(insert.getGeneratedKeys(), "id"), "[1]");
        }
        try (PreparedStatement insert = connection.prepareStatement(sql, new String[] {"id", "city"})) {
            insert.setLong(1, 2);
            check("insert", insert.executeUpdate(), 1);
            check("keys", column(insert.getGeneratedKeys(), "city"), "[Chur]");
        }
    }

    static void copy(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE copied (id int PRIMARY KEY, name text)");
        }
        var copies = connection.unwrap(PGConnection.class).getCopyAPI();
        check("rows in", copies.copyIn("COPY copied FROM STDIN (FORMAT csv)", new StringReader("1,one\n2,\n3,three\n")), 3);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        check("rows out", copies.copyOut("COPY (SELECT * FROM copied ORDER BY id) TO STDOUT", out), 3);
        check("out", out.toString("UTF-8"), "1\tone\n2\t\\N\n3\tthree\n");
    }

    static void fetchSize(Connection connection) throws SQLException {
        connection.setAutoCommit(false); // portals live in a transaction
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(50);
            long sum = 0, rows = 0;
            try (ResultSet result = statement.executeQuery("SELECT id FROM trips ORDER BY id")) {
                while (result.next()) {
                    sum += result.getLong(1);
                    rows++;
                }
            }
            check("rows", rows, 500);
            check("sum", sum, 500 * 501 / 2);
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    static void errors(Connection connection) throws SQLException {
        String[][] cases = {{"SELECT * FROM nothing", "42P01"}, {"SELECT colour FROM trips", "42703"}, {"SELEC 1", "42601"}};
        for (String[] pair : cases) {
            try (Statement statement = connection.createStatement()) {
                statement.execute(pair[0]);
                throw new AssertionError(pair[0] + " succeeded");
            } catch (SQLException error) {
                check(pair[0], error.getSQLState(), pair[1]);
            }
        }
    }
}

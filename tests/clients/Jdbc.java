// Does the Postgres JDBC driver work? Metadata calls, prepared statements of every common type, fetch size, batches, errors.

import java.math.BigDecimal;
import java.sql.*;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

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
        }
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
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SELECT fare, id FROM trips LIMIT 1")) {
            ResultSetMetaData result = rows.getMetaData();
            check("type of fare", result.getColumnTypeName(1), "numeric");
            check("type of id", result.getColumnTypeName(2), "int8");
        }
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

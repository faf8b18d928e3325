//! Where does DataFusion mean something else than PostgreSQL?
//!
//! Each difference is mended by one file here: a rule of the analyzer, or a function in the place of DataFusion's. The
//! engine knows none of it (`tarn_query::SqlDialect`). What showed the difference:
//!
//! | statement | PostgreSQL | DataFusion | |
//! |---|---|---|---|
//! | `SELECT 2147483647 + 1` | 22003 | 2147483648 | `integer_literals` |
//! | `SELECT 9223372036854775807 + 1` | 22003 | -9223372036854775808 | `integers` |
//! | `SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) v(x)` | 9223372036854775808 | -9223372036854775808 | `sums` |
//! | `SELECT 1::smallint << 2` | a `smallint` | an `integer` | `shifts` |
//! | `SELECT amount % 1` | what is behind the point | 0, of a column that is NOT NULL | `remainders` |
//! | `UPDATE t SET (a, b) = (SELECT x, y FROM u)`, `= ROW(1, 2)` | sets both | not known | `assigned_rows` |
//! | `INSERT INTO t (n) SELECT true`, `UPDATE t SET n = 'a' \|\| 'b'` of an `integer` | 42804 | casts | `assignments` |
//! | `SELECT nullif(1, 2::bigint)` | an `integer` | a `bigint` | `arguments` |
//! | `SELECT 4 = ANY ('{3,NULL}'::int[])`, `1.24 = ANY (ARRAY[1.24, 2])` | NULL, t | f, an error | `in_array` |
//! | `SELECT 4 < ALL ('{5,NULL}'::int[])` | NULL | t | `item_comparisons` |
//! | `SELECT (ARRAY[1, 2])[-1], (ARRAY[1, 2])[-1:1]` | NULL, {1} | 2, {} | `subscripts` |
//! | `SELECT ('{{1,2},{3,4}}'::int[])[1:2][1]` | {{1},{3}} | errors, {1,2} | `array_depths`, `subscripts` |
//! | `SELECT ARRAY[NULL::int] > ARRAY[1], greatest(interval '31 days', interval '1 month')` | t, 31 days | f, 1 mon | `extremes` |
//! | `WITH RECURSIVE r(v) AS (SELECT 1.5 UNION ALL SELECT v * 1.25 …)` | 1.5, 1.875, 2.34375 | 1.5, 1.9, 2.4 | `recursion` |
//! | `SELECT sum(n) + 1` of a `numeric` without a precision | 8.5 | 8.500000000000 | `shown_digits` |
//! | `SELECT unnest(tags) FROM t ORDER BY k` | in that order | an error | `sorted_sets` |
//! | `SELECT 5 / 3.0` | 1.6666666666666667 | 1.6666 | `division` |
//! | `SELECT avg(x) * avg(x)` | its digits | not known | `products` |
//! | `SELECT avg(x) FROM (VALUES (2), (3)) v(x)` | 2.5000000000000000 | 2.5 | `averages` |
//! | `SELECT var_pop('inf'::float8)`, `variance(x)` of integers | NaN, a numeric | 0, a float | `variances` |
//! | `SELECT corr(y, x)` of pairs with NaN or infinity | NaN | NULL, 0 | `regressions` |
//! | `SELECT string_agg(s, t)`, `string_agg(b, '\x00'::bytea)` | with `t` of each row, bytes | not known, a text | `string_delimiters` |
//! | `SELECT lag(x, NULL) OVER w`, `ntile(0) OVER w` | NULL, 22014 | `x`, 22023 | `window_offsets` |
//! | `SELECT sum(x) OVER (ORDER BY y ROWS 1 PRECEDING)` of floats | added up anew | what leaves is taken off | `frames` |
//! | `SELECT exp(32.999)`, `2.0 ^ 0.5`, `exp(1000::float8)` | 214429043492155.053, 1.4142135623730950, 22003 | floats | `exact_functions` |
//! | `SELECT 1 UNION SELECT '2'`, `SELECT 1.5::float8 UNION SELECT 2.5` | integers, floats | texts, numerics | `unions` |
//! | `coalesce(1, '2')`, `CASE WHEN a THEN 1 ELSE '2' END`, `coalesce(2.5, 1.5::float8)` | numbers, a float | texts, a numeric | `common_types` |
//! | `coalesce(d, '2024-01-01')`, `nullif(tags, '{}')` of a `date`, of an array | a date, an array | errors | `texts_beside` |
//! | `SELECT d < 3`, `at < '9999-12-31'`, `d BETWEEN '2024-01-01' AND now()` | 42883, a truth, two comparisons | f, an error, one type | `comparable` |
//! | `VALUES (1.5::float8), (2.5)` | floats | numerics | `value_columns` |
//! | `SELECT x * '-1'` of a number | a number | not known | `unknown_operands` |
//! | `SELECT 1::float8 / 0`, `SELECT 1e308::float8 * 10` | 22012, 22003 | Infinity | `floats` |
//! | `SELECT 3.7::int`, `SELECT 1e15::float8` | 4, 1e+15 | 3, 999999999999999.9 | `casts` |
//! | `SELECT timestamp '2024-01-01'::text` | 2024-01-01 00:00:00 | 2024-01-01T00:00:00 | `casts` |
//! | `SELECT to_char(now(), 'YYYY-MM-DD')` | 2026-11-24 | YYYY-MM-DD | `to_char` |
//! | `SELECT regexp_replace('abc', 'b', '[\&]')`, `regexp_matches('ab', 'b', 'g')` | a[b]c, rows | a[\&]c, not known | `regular_expressions` |
//! | `SELECT regexp_match('xyz', '.|...')` | {xyz} | {x} | `longest` |
//! | `SELECT 'a' LIKE '\'` | 22025 | false | `like_patterns` |
//! | `SELECT 'a' ~ '{'`, `'a' ~ '('` | f, 2201B | errors of the engine | `pattern_operators` |
//! | `SELECT ceil(5.1)`, `trunc(5.99)`, `sign(-5.5)` | 6, 5, a numeric | 6.0, 5.00, a float | `rounding` |
//! | `SELECT num_nulls(1, NULL)`, `isfinite(now())` | 1, t | not known | `nulls` |
//! | `SELECT to_timestamp('NaN'::float8)` | 22008 | 1970-01-01 | `epoch` |
//! | `SELECT date_trunc('day', timestamp 'infinity')` | infinity | an error | `infinite_times` |
//! | `SELECT sum(x) OVER (w ROWS 1 PRECEDING) … WINDOW w AS (ORDER BY y)` | in the order of `y` | in none | `windows_copied` |
//! | `SELECT sum(x) OVER (ORDER BY y ROWS 1 PRECEDING EXCLUDE TIES)` | without its peers | not known | `exclusions` |
//! | `SELECT sum(x) OVER (ORDER BY y RANGE '1 year'::interval PRECEDING)` | of a year | not known | `frame_offsets` |
//! | `GROUP BY GROUPING SETS (GROUPING SETS (a, ()), ROLLUP ((a, b)))` | (a), (), (a, b), () | errors | `grouping_sets` |
//! | `SELECT ARRAY(SELECT x FROM t ORDER BY x)` | an array | not known | `array_queries` |
//! | `SELECT (a, b) OVERLAPS (c, interval '1 day')` | a boolean | not known | `overlaps` |
//! | `SELECT * FROM (a JOIN b USING (n)) j` | `n` once | twice | `joined_alias` |
//! | `SELECT array_agg(x) FROM (SELECT x FROM t ORDER BY y) s` | in that order | in any | `inner_order` |
//! | `SELECT ARRAY[]`, `SELECT count() FROM t` | errors | `{}`, a count | `refused` |
//! | `SELECT string_agg(DISTINCT a::text, ',' ORDER BY a)` | 42P10 | a text | `aggregates_checked` |
//! | `SELECT to_number('12,454.8-', '99G999D9S')` | -12454.8 | not known | `to_number` |
//! | `SELECT array_dims(ARRAY[1])`, `trim_array(ARRAY[1, 2], 1)` | [1:1], {1} | an array, not known | `array_shapes` |
//! | `SELECT array_remove(ARRAY[1, NULL], NULL)` | {1} | NULL | `array_removals` |
//! | `UPDATE t SET tags[2] = 'x'` | another item | an error | `array_assigned` |
//! | `SELECT array_agg(id)`, `ARRAY[id]` of a `uuid` | a `uuid[]` | a `text[]` | `typed_arrays` |
//! | `SELECT rank(3) WITHIN GROUP (ORDER BY x)` | its rank if it were there | not known | `hypothetical_sets` |
//! | `SELECT width_bucket(x, ARRAY[1, 3])` | 1 | not known | `array_bucket` |
//! | `SELECT mode() WITHIN GROUP (ORDER BY x)`, `percentile_cont(1.0 / 3)` | values | not known, six digits | `ordered_sets` |
//! | `SELECT convert_from(b, 'UTF8')`, `encode(b, 'escape')`, `get_byte` | texts, bytes | not known | `bytes` |
//! | `SELECT substr('\x0102'::bytea, 2), '\x01'::bytea ~~ '%'` | \x02, t | not known | `byte_strings` |
//! | `SELECT quote_ident('ABC'), parse_ident('A.b')` | "ABC", {a,b} | ABC, {A,b} | `identifiers` |
//! | `SELECT 3 >= ALL ('{1,2}'), 'foo' LIKE ANY (ARRAY['f%'])` | t, t | errors | `any_of` |
//! | `SELECT ok = 't'` of a `boolean`, `ARRAY[1] && ARRAY[1]` | t | not known | `truths`, `array_operators` |
//! | `SELECT a COLLATE "C"`, `1 COLLATE "C"` | a text, 42804 | not known | `collations` |
//! | `SELECT float4send(1)`, `unistr('d\0061t')` | \x3f800000, dat | not known | `float_bytes`, `unistr` |
//! | `SELECT concat_ws(',', VARIADIC ARRAY[1, 2])`, `date(now())` | 1,2, a date | not known | `variadic`, `cast_calls` |
//! | `SELECT to_date('05 Dec 2000', 'DD Mon YYYY')` | 2000-12-05 | an error | `date_reading` |
//! | `SELECT div(7, 2), width_bucket(5.35, 0, 10, 5), lcm(4, 6)` | 3, 3, 12 | not known | `numbers` |
//! | `SELECT sind(30), tand(45)` | 0.5, 1 | not known | `degrees` |
//! | `SELECT upper('straße')`, `lower('ΟΔΟΣ')` | STRAßE, οδοσ | STRASSE, οδος | `letters` |
//! | `SELECT ts + time '10:00'`, `time '01:00' * 2` | a timestamp, an interval | errors | `interval_operators` |
//! | `(a, b) = (SELECT c, d …)` | of the row | not known | `row_queries` |
//! | `SELECT date '2024-01-01' + interval '1 hour'` | 2024-01-01 01:00:00 | 2024-01-01 | `times` |
//! | `SELECT timestamptz '2024-03-09 02:30' + interval '1 day'`, in Los Angeles | 03:30 | an error | `instants` |
//! | `SELECT 'Jan 8 1999'::date, 'today'::timestamptz` | 1999-01-08, midnight | not known | `times_of_text` |
//! | `SELECT interval '1 2:03' DAY TO SECOND, '1 day 02:00'::interval` | 1 day 02:03:00, 1 day 02:00:00 | not known | `interval_types` |
//! | `SELECT interval '1 minute' * 3, time '01:00' - interval '2 hours'` | 00:03:00, 23:00:00 | not known | `interval_operators` |
//! | `SELECT time '01:00' * 2, now() + time '01:00', time '01:00' < interval '2 hours'` | an interval, later, t | not known | `interval_operators` |
//! | `SELECT sum(x), max(x)` of intervals | an interval, the longest | not known, the most months | `interval_aggregates` |
//! | `SELECT extract(second FROM timestamp '2024-01-01 00:00:01.75')`, `extract(year FROM now())` | 1.750000, a numeric | 1, an integer | `extract` |
//! | `SELECT extract(century FROM now())`, `date_trunc('decade', now())` | 21, 2020-01-01 | not known | `extract`, `date_trunc` |
//! | `SELECT date_bin(x, at, timestamp '4000-01-01 BC')` of an interval of each row | its bin | errors | `date_bins` |
//! | `SELECT make_interval(days => 10)`, `make_timestamptz(2026, 1, 2, 3, 4, 5.5)` | times | not known | `made_times` |
//! | `SELECT interval '30 days' = interval '1 month'` | t | f | `times` |
//! | `SELECT acos(2)`, `SELECT round(2.5::float8)`, `SELECT array_length('{}'::int[], 1)` | 22003, 2, NULL | NaN, 3, 0 | `guards` |
//! | `SELECT 16777217::float4 = 16777217` | f | t | `floats` |
//! | `SELECT 1e30::float8 > 2.55`, `0.1::real IN (0.1, 2)`, `0.1::real = 0.1` | t, t, f | 22003, f, t | `floats` |
//! | `SELECT round(1.239, '2'::int) = 1.24`, of a constant that is computed | t | errors | `settled` |
//! | `SELECT 3::numeric, 1.23456789012::numeric` | 3, 1.23456789012 | 3.0000000000, 1.2345678901 | `numeric` |
//! | `SELECT '{}'::json`, `'{}'::jsonb`, `SELECT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid` | of these types | unknown types | `kept_as_text` |
//! | `SELECT '10.1.2.3/8'::inet << '10.0.0.0/7'`, `host(ip)`, `ip + 1` | t, 10.1.2.3, an inet | unknown types | `inets` |
//! | `SELECT m FROM t ORDER BY m`, `m < 'ok'` of an enumerated type | in the order of its labels | not known | `enums` |
//! | `SELECT doc = '{}' FROM t` of a `json`, of a `jsonb` | 42883, what it means | compares texts | `json` |
//! | `SELECT doc -> 'a'`, `doc @> '{}'`, `jsonb_agg(doc)` | of its parts | not known | `json` |
//! | `SELECT row_to_json(q) FROM (SELECT 1 AS a) q` | {"a":1} | not known | `tarn-query` `whole_rows` |
//! | `FROM json_to_record(doc) AS x(a varchar(2))` of a longer text | 22001 | not known | `fitted` |
//! | `SELECT '1'::pg_catalog.int8` | 1 | unknown type | `type_names` |
//! | `SELECT 'abc'::varchar(2)`, `'{abc}'::varchar(2)[]`, `length('a '::char(3))` | ab, {ab}, 1 | abc, {abc}, 2 | `fitted` |
//! | `SELECT 'ab'::bpchar = 'ab '` | t | not known | `blank_padded` |
//! | `SELECT c = 'a ', c LIKE 'a', concat(c, '.')` of a `char(3)` that is `'a'` | t, f, `a  .` | f, t, `a.` | `filled` |
//! | `SELECT (SELECT b.x FROM b WHERE b.k = a.k) FROM a` | the only row, or 21000 | not known | `single` |
//! | `VALUES (1), (1) EXCEPT ALL VALUES (1)`, `SELECT 1 EXCEPT SELECT 2.5` | 1, a numeric | no row, an integer | `set_operations` |
//! | `SELECT x FROM t ORDER BY x FETCH FIRST ROW WITH TIES` | rows that tie, too | not known | `with_ties` |
//! | `SELECT a FROM t ORDER BY (SELECT count(*) FROM u WHERE u.k = t.k)` | in that order | not known | `sorted_by_queries` |
//! | `a JOIN b ON EXISTS (SELECT … WHERE x = a.x)` | what holds | not known | `joined_by_queries` |
//! | `(a, b) IN (SELECT c, d FROM t)`, `(a + 1, b) = (1, 2)` | of rows | not known | `row_queries` |
//! | `generate_series(date '2024-01-01', '2024-03-01', '1 month')`, `FROM t, generate_series(1, t.n)` | rows | errors | `series` |
//! | `FROM generate_series(1, 2)` | integers | bigints | `series`, `integer_series` |
//! | `SELECT array_agg(DISTINCT x)` | sorted | in any order | `distinct_order` |
//! | `SELECT localtimestamp, localtime` | times | not known | `local_times` |
//! | `SELECT row_number() OVER ()` | `bigint` | unsigned | `ranks` |
//! | `SELECT EXISTS (SELECT 1)`, `TABLE t`, `FROM current_schema()` | rows | not known | `in_from` |
//! | `FROM t AS x(a)` of more columns | `a`, and the others by their names | an error | `few_names` |
//! | `FROM unnest(a) WITH ORDINALITY AS t(x, n)` | rows and their numbers | not known | `ordinality` |
//! | `SELECT * FROM t, jsonb_array_elements(t.doc)` | rows of each `t` | not run | `lateral` |
//! | `SELECT a, generate_series(1, 3) FROM t` | three rows | an array | `select_list` |
//! | `SELECT count(t.*) FROM … LEFT JOIN t` | rows of `t` | all rows | `select_list` |
//! | `SELECT a FROM (SELECT 1 AS a, 2 AS a) s` | 42702 | 1 | `ambiguous` |
//! | `FROM a x CROSS JOIN (b x CROSS JOIN LATERAL (SELECT x.n) s)` | 42P09 | the nearer one's | `lateral_names` |
//! | `SELECT n FROM a FULL JOIN b USING (n)` | of `b` where `a` has no row | NULL there | `using` |

mod aggregates_checked;
mod ambiguous;
mod any_of;
mod arguments;
mod array_assigned;
mod array_bucket;
mod array_depths;
mod array_operators;
mod array_queries;
mod array_removals;
mod array_shapes;
mod assigned_rows;
pub(crate) mod assignments;
mod averages;
mod blank_padded;
mod byte_strings;
mod bytes;
mod calendar;
mod calls;
mod cast_calls;
mod casts;
mod clock;
mod collations;
mod common_types;
mod comparable;
mod composites;
mod date_bins;
mod date_reading;
mod date_template;
mod date_trunc;
mod degrees;
mod distinct_order;
mod division;
mod enums;
mod epoch;
mod exact_functions;
mod exclusions;
mod extract;
mod extremes;
mod few_names;
mod filled;
mod fitted;
mod float_bytes;
mod floats;
mod format;
mod frame_offsets;
mod frames;
mod grouping_sets;
mod guards;
mod hypothetical_sets;
pub(crate) mod identifiers;
mod in_array;
pub(crate) mod in_from;
mod inets;
mod infinite_times;
mod inner_order;
mod instants;
mod integer_literals;
mod integer_series;
mod integers;
mod interval_aggregates;
mod interval_equality;
mod interval_operators;
mod interval_types;
mod intervals;
mod item_comparisons;
mod joined_alias;
mod joined_by_queries;
mod json;
pub(crate) mod kept_as_text;
mod lateral;
mod lateral_names;
mod letters;
mod like_patterns;
mod local_times;
mod longest;
mod made_times;
mod moments;
mod nulls;
mod number_template;
mod numbers;
mod numeric;
mod ordered_sets;
mod ordinality;
mod overlaps;
mod pattern_flags;
mod pattern_operators;
mod patterns;
mod powers;
mod products;
mod ranks;
mod recursion;
mod refused;
mod regressions;
mod regular_expressions;
mod remainders;
mod rounding;
pub(crate) mod row_access;
mod row_queries;
mod rowwise;
pub(crate) mod select_list;
mod series;
mod set_operations;
mod settled;
mod shifts;
mod shown_digits;
mod single;
mod sorted_by_queries;
mod sorted_sets;
mod string_delimiters;
mod subscripts;
mod sums;
mod text_sets;
mod texts_beside;
mod times;
mod times_of_text;
mod to_char;
mod to_number;
mod truths;
mod type_name;
mod type_names;
mod typed_arrays;
mod typed_operators;
mod unions;
mod unistr;
mod unknown_operands;
mod using;
mod value_columns;
mod variadic;
mod variances;
mod window_offsets;
mod windows_copied;
mod with_ties;

use std::sync::Arc;

use tarn_node::types::Types;
use tarn_query::{Rule, SqlDialect};

pub(crate) use self::array_queries::query_of_array;
pub(crate) use self::calls::{all_of, binary, call};
pub(crate) use self::item_comparisons::ITEM_COMPARISON;
pub(crate) use self::json::populate::{in_from as populate, is_populated};
pub(crate) use self::row_access::{field_of as field_of_row, row_of_all};

/// What statements mean here, where these types are.
pub(crate) fn meaning(types: &Arc<Types>) -> SqlDialect {
    SqlDialect {
        planned: vec![
            Arc::new(recursion::RecursiveTypes),
            Arc::new(ambiguous::AmbiguousNames),
            Arc::new(with_ties::WithTies),
            Arc::new(sorted_by_queries::SortedByQueries),
            Arc::new(joined_by_queries::JoinedByQueries),
            Arc::new(set_operations::SetOperations),
            Arc::new(aggregates_checked::CheckedAggregates),
            Arc::new(integer_literals::IntegerLiterals),
        ],
        written: [
            vec![Arc::new(lateral::LateralLists) as Rule],
            inets::rules(),
            composites::rules(),
            enums::rules(types),
            vec![
                Arc::new(unions::Unions),
                Arc::new(typed_arrays::TypedArrays),
                Arc::new(array_assigned::AssignedItems),
                Arc::new(filled::ShownWithBlanks),
                Arc::new(casts::TextCastRule),
            ],
            json::rules(),
            vec![
                Arc::new(frame_offsets::FrameOffsets),
                Arc::new(overlaps::OverlapsRule),
                Arc::new(comparable::Comparable),
                Arc::new(texts_beside::ComparedTexts),
                Arc::new(interval_equality::ComparedIntervals),
                Arc::new(times::Times::new()),
                Arc::new(interval_aggregates::IntervalAggregates::new()),
                Arc::new(common_types::CommonTypes),
                Arc::new(floats::WideFloats),
                Arc::new(typed_operators::TypedOperators::new()),
                Arc::new(settled::WrittenArguments),
                Arc::new(arguments::Arguments),
            ],
        ]
        .concat(),
        relations: vec![Arc::new(few_names::FewNames), Arc::new(series::Integers)],
        operators: vec![
            composites::planner(),
            inets::planner(),
            Arc::new(unknown_operands::UnknownOperands),
            Arc::new(truths::Truths),
            json::planner(),
            Arc::new(interval_operators::TimeOperators),
            Arc::new(array_operators::ArrayOperators),
            Arc::new(subscripts::Subscripts),
            Arc::new(extract::Extracts),
            Arc::new(byte_strings::ByteStrings),
            Arc::new(products::LongProducts),
            Arc::new(exclusions::Exclusions),
        ],
        coerced: vec![
            Arc::new(lateral::ListsAround),
            Arc::new(shown_digits::ShownDigits),
            Arc::new(casts::Casts),
            Arc::new(integers::CheckedIntegers::new()),
            Arc::new(floats::CheckedFloats::new()),
            Arc::new(extremes::ComparedArrays::new()),
            Arc::new(interval_equality::GroupedIntervals),
            Arc::new(times::SortedIntervals),
            Arc::new(instants::LaterInstants),
            Arc::new(remainders::Remainders::new()),
            Arc::new(settled::SettledTypes),
        ],
        functions: [
            vec![
                Arc::new(to_char::to_char()),
                Arc::new(numeric::numeric()),
                Arc::new(type_name::type_of()),
                Arc::new(date_trunc::date_trunc()),
                Arc::new(date_bins::date_bin()),
                Arc::new(epoch::to_instant()),
            ],
            guards::guarded(),
            intervals::functions(),
            kept_as_text::functions(),
            inets::functions(),
            enums::functions(),
            composites::functions(),
            fitted::functions(),
            format::functions(),
            json::functions(),
            clock::functions(),
            interval_types::functions(),
            made_times::functions(),
            date_reading::functions(),
            letters::functions(),
            numbers::functions(),
            exact_functions::functions(),
            regular_expressions::functions(),
            ordered_sets::functions(),
            bytes::functions(),
            byte_strings::functions(),
            extract::functions(),
            texts_beside::told(extremes::functions()),
            texts_beside::functions(),
            nulls::functions(),
            rounding::functions(),
            array_shapes::functions(),
            array_removals::functions(),
            vec![in_array::function(), item_comparisons::function()],
            array_queries::functions(),
            assignments::functions(),
            exclusions::functions(),
            overlaps::functions(),
            string_delimiters::functions(),
            recursion::functions(),
            float_bytes::functions(),
            vec![
                Arc::new(to_number::to_number()),
                Arc::new(unistr::unistr()),
                Arc::new(series::series()),
                Arc::new(with_ties::mark()),
                Arc::new(collations::collated()),
                Arc::new(blank_padded::blank_padded()),
            ],
        ]
        .concat(),
        aggregates: [
            vec![Arc::new(sums::sum()), Arc::new(averages::avg()), single::single()],
            variances::variances(),
            regressions::regressions(),
        ]
        .concat(),
        windows: [ranks::ranks(), window_offsets::windows()].concat(),
        types: Some(Arc::new(shown_digits::WrittenScales(enums::names(types)))),
        ..SqlDialect::default()
    }
}

{{ config(materialized='table') }}
select n as id, case n % 3 when 0 then 'Bern' when 1 then 'Chur' else 'Lyon' end as city,
    timestamp '2026-11-01 08:00' + n * interval '1 hour' as at, (n * 1.5)::numeric(10, 2) as fare
from generate_series(1, 300) as n

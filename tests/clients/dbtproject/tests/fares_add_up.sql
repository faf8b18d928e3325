select a.fares, b.fares as others
from (select sum(fares) as fares from {{ ref('by_city') }}) a, (select sum(fares) as fares from {{ ref('days') }}) b
where a.fares <> b.fares

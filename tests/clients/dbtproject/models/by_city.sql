{{ config(materialized='view') }}
select c.country, r.city, count(*) as rides, sum(r.fare) as fares, max(r.at) as last
from {{ ref('rides') }} r join {{ ref('cities') }} c on c.city = r.city
group by 1, 2

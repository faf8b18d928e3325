{{ config(materialized='incremental') }}
with rides as (select * from {{ ref('rides') }})
select date_trunc('day', at)::date as day, count(*) as rides, sum(fare) as fares
from rides
{% if is_incremental() %} where at::date > (select max(day) from {{ this }}) {% endif %}
group by 1

{{ config(materialized='table') }}
select sum(rides) as rides from {{ ref('inner_part') }}

{{ config(materialized='ephemeral') }}
select city, rides from {{ ref('by_city') }} where country = 'CH'

{{ config(materialized='incremental', unique_key='city', incremental_strategy='delete+insert') }}
select city, count(*) as rides, max(at) as last from {{ ref('rides') }} group by city

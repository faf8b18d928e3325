{% snapshot cities_then %}
{{ config(target_schema='public', unique_key='city', strategy='check', check_cols=['country']) }}
select * from {{ ref('cities') }}
{% endsnapshot %}

-- The rows of one day, by public rules alone: types, names and a filter. No row is counted, and nothing depends on how many there are.
{{ config(materialized="external", location="rows/" ~ var("day") ~ ".parquet") }}
select customer_id, city, price
from read_parquet('events/*.parquet')
where cast(paid_at as date) = date '{{ var("day") }}'

-- Removes proofs that are neither among the newest $1 of all channels nor among the newest $2 of their own channel. Rows are
-- counted, because the numbers have gaps: each conflict uses up a number.
--
-- Each row is examined once, when it is no longer among the newest $1 of all channels. `examined` is the number of the last
-- examined row, and one statement examines at most $3 rows. For some channels with examined rows, the oldest rows are then
-- removed until $2 rows remain. This is expensive, because up to $2 rows of the channel are counted. It is therefore done
-- only for a channel with at least 32 examined rows, and for a channel with an examined row that a hash selects (one row in
-- 64). A channel can therefore keep a few rows more than $2. While one instance executes this statement, the statement of
-- another instance does nothing.
--
-- A delayed copy is harmless, because it decides by the rows that it finds.
with hand as materialized (
    select examined from {schema}.state limit 1 for update skip locked
), boundary as materialized (
    select number from {schema}.proofs order by number desc offset $1 limit 1
), leaving as materialized (
    select p.number, p.channel_id
    from hand, boundary, lateral (
        select number, channel_id from {schema}.proofs
        where number > hand.examined and number <= boundary.number
        order by number limit $3
    ) p
), moved as (
    update {schema}.state set examined = (select max(number) from leaving) where exists (select from leaving)
), due as materialized (
    select channel_id from leaving
    group by channel_id
    having count(*) >= 32 or bool_or(hashint8(number) & 63 = 0)
), oldest as materialized (
    select due.channel_id, (
        select p.number from {schema}.proofs p
        where p.channel_id = due.channel_id order by p.number desc offset $2 - 1 limit 1
    ) as number
    from due
)
delete from {schema}.proofs p
using oldest, boundary
where p.channel_id = oldest.channel_id and p.number < oldest.number and p.number <= boundary.number

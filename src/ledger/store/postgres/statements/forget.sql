-- Forgets proofs that are neither among the newest $1 of all channels nor among the newest $2 of their own channel. Rows are
-- counted: numbers have gaps, because each conflict uses one up.
--
-- Each row is examined once, when it is no longer among the newest $1: `examined` is the number up to which this was done, and
-- one statement examines at most $3 rows. A channel that such a row belongs to is trimmed. Trimming counts up to $2 rows, so a
-- channel with few such rows is trimmed for one in 64 of them, chosen by a hash: it keeps a few rows more. Instances take turns:
-- while one forgets, the others do nothing. A late copy forgets by what it finds.
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

//! Rules for the tables in PostgreSQL. A trigger of each table obeys them. A rule begins and ends without a lock on the
//! table, for which a test would wait.

use std::time::Duration;

use super::super::world::WAREHOUSES;
use crate::support::Database;

/// A rule without a channel is for all channels. A rule without seconds refuses the events with an even offset.
const RULES: &str = "\
create table rules (relation text not null, channel text, seconds double precision);
create function obey() returns trigger language plpgsql as $$
declare rule record;
begin
    for rule in select * from public.rules where relation = tg_table_name and coalesce(channel, new.channel) = new.channel loop
        if rule.seconds is not null then
            perform pg_sleep(rule.seconds);
        elsif new.event_offset % 2 = 0 then
            raise exception 'refused' using errcode = 'ZX001';
        end if;
    end loop;
    return new;
end $$;
";

/// Adds the trigger to each table, without a rule.
pub(in super::super) async fn prepare(database: &Database) {
    let trigger = |number| {
        format!("create trigger obeys before insert on events_{number} for each row execute function obey();\n")
    };
    let triggers: String = (0..WAREHOUSES.len()).map(trigger).collect();
    database.change(&(RULES.to_owned() + &triggers)).await;
}

pub(super) async fn refuse_every_second(database: &Database, table: usize, channel: usize) {
    database.change(&format!("insert into rules values ('events_{table}', 'c{channel}', null)")).await;
}

pub(super) async fn slow_down(database: &Database, table: usize, row: Duration) {
    database.change(&format!("insert into rules values ('events_{table}', null, {})", row.as_secs_f64())).await;
}

pub(super) async fn drop_all(database: &Database, table: usize) {
    database.change(&format!("delete from rules where relation = 'events_{table}'")).await;
}

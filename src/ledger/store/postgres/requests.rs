//! The requests between instances, stored as rows.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Postgres;
use crate::StateError;
use crate::store::shared::{Answer, Asked, InstanceId, RequestId, Requests, Standing};
use net::tasks::lock;

/// How long received requests are remembered. This is longer than a request can be taken.
const REMEMBERED: Duration = Duration::from_secs(120);

#[async_trait]
impl Requests for Postgres {
    async fn ask(&self, instance: InstanceId, request: &Asked) -> Result<RequestId, StateError> {
        let parameters = [
            (&instance as _, Type::UUID),
            (&request.method as _, Type::TEXT),
            (&request.path as _, Type::TEXT),
            (&request.body as _, Type::BYTEA),
        ];
        let rows = self.board.query(&self.schema().ask, &parameters).await?;
        let id = rows.first().map(|row| row.get(0));
        id.ok_or_else(|| StateError::Damaged("a request that was written has no number".to_owned()))
    }

    async fn look(&self, request: RequestId, withdraw: bool) -> Result<Standing, StateError> {
        if !withdraw {
            let rows = self.board.query(&self.schema().look, &[(&request as _, Type::INT8)]).await?;
            let is_over = rows.first().is_some_and(|row| answer_of(row).is_some() || row.get(3));
            if !is_over {
                return Ok(Standing::Waiting);
            }
            if let Some(answer) = rows.first().and_then(answer_of) {
                // The request is no longer needed. If this fails, it is removed after a minute.
                let _ = self.board.query(&self.schema().withdraw, &[(&request as _, Type::INT8)]).await;
                return Ok(Standing::Answered(answer));
            }
        }
        let rows = self.board.query(&self.schema().withdraw, &[(&request as _, Type::INT8)]).await?;
        Ok(match rows.first() {
            Some(row) => answer_of(row).map_or(Standing::Ended { taken: row.get(0) }, Standing::Answered),
            // An earlier withdrawal has ended the request, but its answer was lost.
            None => Standing::Ended { taken: true },
        })
    }

    async fn take(&self) -> Result<Vec<(RequestId, Asked)>, StateError> {
        let received: Vec<RequestId> = {
            let mut received = lock(&self.received);
            received.retain(|_, since| since.elapsed() < REMEMBERED);
            received.keys().copied().collect()
        };
        let parameters = [(&self.me as _, Type::UUID), (&received as _, Type::INT8_ARRAY)];
        let rows = self.board.query(&self.schema().take, &parameters).await?;
        let asked = |row: &Row| (row.get(0), Asked { method: row.get(1), path: row.get(2), body: row.get(3) });
        let mut received = lock(&self.received);
        let mut is_new = |request: &(RequestId, Asked)| received.insert(request.0, Instant::now()).is_none();
        Ok(rows.iter().map(asked).filter(|request| is_new(request)).collect())
    }

    async fn answer(&self, request: RequestId, answer: &Answer) -> Result<(), StateError> {
        let status = i32::from(answer.status);
        let parameters = [(&request as _, Type::INT8), (&status as _, Type::INT4), (&answer.body as _, Type::BYTEA)];
        self.board.query(&self.schema().answer, &parameters).await.map(drop)
    }
}

/// The answer in the row of a request, if it has one.
fn answer_of(row: &Row) -> Option<Answer> {
    let (status, body) = row.get::<_, Option<i32>>(1).zip(row.get::<_, Option<Vec<u8>>>(2))?;
    Some(Answer { status: u16::try_from(status).unwrap_or(500), body })
}

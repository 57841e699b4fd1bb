//! What instances ask each other, as rows.

use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Postgres;
use crate::ledger::StateError;
use crate::ledger::store::shared::{Answer, Asked, InstanceId, RequestId, Requests, Standing};

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
        let parameters = [(&request as _, Type::INT8), (&withdraw as _, Type::BOOL)];
        let rows = self.board.query(&self.schema().look, &parameters).await?;
        let Some(row) = rows.first() else {
            // Where it is not there, an earlier look has ended it, and what that has said was lost.
            return Ok(if withdraw { Standing::Ended { taken: true } } else { Standing::Waiting });
        };
        let answer = row.get::<_, Option<i32>>(1).zip(row.get::<_, Option<Vec<u8>>>(2));
        Ok(match answer {
            Some((status, body)) => Standing::Answered(Answer { status: u16::try_from(status).unwrap_or(500), body }),
            None => Standing::Ended { taken: row.get(0) },
        })
    }

    async fn take(&self) -> Result<Vec<(RequestId, Asked)>, StateError> {
        let rows = self.board.query(&self.schema().take, &[(&self.me as _, Type::UUID)]).await?;
        let asked = |row: &Row| (row.get(0), Asked { method: row.get(1), path: row.get(2), body: row.get(3) });
        Ok(rows.iter().map(asked).collect())
    }

    async fn answer(&self, request: RequestId, answer: &Answer) -> Result<(), StateError> {
        let status = i32::from(answer.status);
        let parameters = [(&request as _, Type::INT8), (&status as _, Type::INT4), (&answer.body as _, Type::BYTEA)];
        self.board.query(&self.schema().answer, &parameters).await.map(drop)
    }
}

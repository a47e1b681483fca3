//! The lock, and what may be written under it.

use super::{DisconnectReason, Event, LockState, Request, Session};
use crate::txn::{CompileContext, InFlight, status_of};
use crate::{Commit, ProtocolError, Txn, TxnError, TxnId, TxnStatus};
use serde_json::Value;

impl Session {
    /// Sends what a transaction would change in the replica. Several may be under way at once.
    ///
    /// Nothing is sent if nothing would change, while the replica does not follow the database, or while the lock that
    /// the session is to hold is not held.
    ///
    /// # Errors
    /// If the transaction names a table or column that is not declared, or gives a value that does not fit.
    pub fn commit(&mut self, txn: &Txn) -> Result<Commit, TxnError> {
        let compiled = txn.compile(&CompileContext {
            database: &self.config.database,
            replica: &self.replica,
            is_being_written: &|cell| self.in_flight.values().any(|txn| txn.writes(cell)),
            lock: self.config.lock.as_deref(),
        })?;
        let refusal = match compiled {
            None => TxnStatus::Unchanged,
            Some(_) if !self.is_synced() => TxnStatus::TryAgain,
            Some(_) if self.config.lock.is_some() && self.lock != LockState::Held => TxnStatus::NotLocked,
            Some(compiled) => {
                let (txn, params) = InFlight::new(compiled);
                let id = self.request(Request::Transact, "transact", params);
                self.in_flight.insert(id, txn);
                return Ok(Commit::Incomplete(TxnId(id)));
            }
        };
        Ok(Commit::Finished(refusal))
    }

    pub(super) fn transact_reply(&mut self, id: u64, reply: Result<&Value, &Value>) {
        if let Some(txn) = self.in_flight.remove(&id) {
            self.events.push_back(Event::Finished(TxnId(id), status_of(&txn, reply)));
        }
    }

    pub(super) fn lock_reply(&mut self, reply: Result<Value, Value>) -> Result<(), DisconnectReason> {
        let refused = |error: Value| ProtocolError::Refused { method: "lock", error: error.to_string() };
        let result = reply.map_err(|error| DisconnectReason::Protocol(refused(error)))?;
        match result.get("locked") {
            Some(Value::Bool(true)) => self.set_lock(LockState::Held),
            Some(Value::Bool(false)) => self.set_lock(LockState::Contended),
            _ => {
                let malformed = ProtocolError::Malformed { message: "lock", problem: result.to_string() };
                return Err(DisconnectReason::Protocol(malformed));
            }
        }
        Ok(())
    }

    pub(super) fn lock_notification(&mut self, method: &str, name: &Value) {
        if self.config.lock.as_deref().is_some_and(|lock| name == lock) {
            self.set_lock(if method == "locked" { LockState::Held } else { LockState::Contended });
        }
    }

    fn set_lock(&mut self, state: LockState) {
        if self.lock != state {
            self.lock = state;
            self.events.push_back(Event::Lock(state));
        }
    }
}

//! Why a connection ended.

/// Why a connection ended, as the log says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The bridge is no longer served, or is served anew.
    #[error("the bridge has ended")]
    BridgeEnded,
    /// The peer closed the connection.
    #[error("the peer has gone")]
    PeerClosed,
    /// Reading or writing failed.
    #[error("the connection broke")]
    Broken,
    /// The peer's messages cannot be read.
    #[error("its messages were wrong")]
    BadMessages,
    /// The peer said no hello in time.
    #[error("no hello has come")]
    NoHello,
    /// The peer did not answer an echo request.
    #[error("the peer does not answer")]
    Inactive,
    /// The peer did not read in time.
    #[error("the peer does not read its answers")]
    SendTimeout,
    /// The bridge has as many connections as it may have.
    #[error("too many connections")]
    TooManyConnections,
    /// Too many updates wait for the flow monitors of the connection.
    #[error("its flow monitors fell too far behind")]
    MonitorsOverrun,
    /// The system could not wait for the connection.
    #[error("it could not be waited for")]
    PollFailed,
    /// The bridge has no controllers.
    #[error("there is no controller to snoop")]
    NothingToSnoop,
    /// The controller has as many snoopers as it may have.
    #[error("too many snoop on this controller")]
    TooManySnoopers,
}

//! Messages of `tracing` on their way to the log.

use crate::levels::Level;
use crate::log::Log;
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// The field that limits how often a message is written.
const RATE_LIMIT: &str = "rate_limit";

/// Hands messages to a [`Log`]. A message that no destination takes costs one load and a branch: `tracing` remembers for
/// each place in the source what this said about it.
pub(crate) struct LogLayer(pub(crate) Log);

impl<S: Subscriber> Layer<S> for LogLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.0.takes(metadata.target(), Level::from(*metadata.level())) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.0.greatest_level() {
            Level::Off | Level::Emer => LevelFilter::OFF,
            Level::Err => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Dbg => LevelFilter::TRACE,
        })
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = EventText::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let message = text.message + &text.fields;
        let level = Level::from(*metadata.level());
        match text.rate_limit {
            None => self.0.write(metadata.target(), level, &message),
            Some(limit) => self.0.write_limited(&metadata.callsite(), limit, metadata.target(), level, &message),
        }
    }
}

/// The text of a message.
#[derive(Default)]
struct EventText {
    message: String,
    /// Other fields, each behind a space.
    fields: String,
    rate_limit: Option<u32>,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            RATE_LIMIT => self.rate_limit = Some(u32::try_from(value).unwrap_or(u32::MAX)),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match field.name() {
            RATE_LIMIT => self.rate_limit = Some(u32::try_from(value).unwrap_or(1)),
            _ => self.record_debug(field, &value),
        }
    }
}

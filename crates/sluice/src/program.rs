//! The name under which the program answers: tools of Open vSwitch read that of its daemon in front of errors.

use std::fmt::Display;
use std::sync::OnceLock;

static NAME: OnceLock<&'static str> = OnceLock::new();

/// Names the program. Only the first call has an effect.
pub fn set_name(name: &'static str) {
    NAME.get_or_init(|| name);
}

/// The program's name: `sluice`, unless it was named otherwise.
pub fn name() -> &'static str {
    NAME.get().copied().unwrap_or("sluice")
}

/// Whether it runs in the place of Open vSwitch's daemon.
pub fn is_open_vswitch() -> bool {
    name() != "sluice"
}

/// An error as OVS's `dpctl` prints it, behind the name of the program.
pub fn error(what: impl Display) -> String {
    format!("{}: {what}", name())
}

//! A process that runs in the background as Open vSwitch's daemons do.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | the command-line options that all daemons of Open vSwitch share |
//! | [`dirs`] | where sockets, pidfiles, logs and databases are |
//! | [`pidfile`] | the file that holds the process id, and the lock on it |
//! | [`detach`], [`monitor`] | the processes between the shell and the daemon |
//! | [`account`] | the user and group that the daemon becomes |
//! | [`main_loop`] | a loop that sleeps until something happens, and can be waited for |
//!
//! **Detaching without `fork`.** A process that has threads must not fork and go on, and `fork` is unsafe in Rust
//! anyhow. So the program executes itself again for each *stage* ([`detach::Stage`]): the launcher, which the shell
//! waits for; the monitor, if there is one; the daemon. The standard input of a later stage is a pipe on which it
//! tells the stage before it that it has started up.
#![forbid(unsafe_code)]

pub mod account;
pub mod detach;
pub mod dirs;
pub mod main_loop;
mod monitor;
pub mod options;
pub mod pidfile;

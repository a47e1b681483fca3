//! The main function of test programs whose cases need what a machine may lack: each is then skipped by name and with
//! the reason, and the last line counts passed, failed and skipped.

use std::process::{Command, ExitCode, Stdio};

/// A case: its name, and its test, which panics if it fails.
pub type Case = (&'static str, fn());

/// Runs the cases whose names contain the program's first argument; `--list` lists them. `suite` stands in the last
/// line. `obstacle` says why a case cannot run here.
pub fn run(suite: &str, cases: &[Case], obstacle: impl Fn(&str) -> Option<String>) -> ExitCode {
    run_by(suite, cases, obstacle, |(_, test)| std::panic::catch_unwind(test).map_err(|_| String::new()))
}

/// The same with another way to run a case. An error is printed behind the case's line.
pub fn run_by(
    suite: &str,
    cases: &[Case],
    obstacle: impl Fn(&str) -> Option<String>,
    run: impl Fn(&Case) -> Result<(), String>,
) -> ExitCode {
    let wanted = std::env::args().nth(1).filter(|arg| !arg.starts_with('-')).unwrap_or_default();
    let cases = cases.iter().filter(|(name, _)| name.contains(&wanted));
    if std::env::args().any(|arg| arg == "--list") {
        cases.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for case @ (name, _) in cases {
        if let Some(why) = obstacle(name) {
            println!("test {name} ... SKIPPED: {why}");
            skipped += 1;
            continue;
        }
        match run(case) {
            Ok(()) => {
                println!("test {name} ... ok");
                passed += 1;
            }
            Err(text) => {
                println!("test {name} ... FAILED\n{text}");
                failed += 1;
            }
        }
    }
    println!("{suite}: {passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

/// Set in the process that has a network namespace of its own.
const IN_OWN_NETWORK: &str = "SLUICE_TEST_IN_OWN_NETWORK";

/// Runs `main` in a network namespace of its own whose loopback is up, so that devices which others left behind, or which
/// a killed case leaves behind, are in nobody's way. Who may not make one has the host's.
pub fn in_own_network(main: impl FnOnce() -> ExitCode) -> ExitCode {
    let may_have_one = || Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()).status();
    if std::env::var_os(IN_OWN_NETWORK).is_some() || !may_have_one().is_ok_and(|status| status.success()) {
        return main();
    }
    let program = std::env::current_exe().expect("the path of this program");
    let mut inside = Command::new("unshare");
    inside.args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]).arg(program);
    let status = inside.args(std::env::args_os().skip(1)).env(IN_OWN_NETWORK, "1").status().expect("unshare runs");
    ExitCode::from(u8::from(!status.success()))
}

/// The obstacle that one of these programs is not installed, if it is not.
pub fn lacking(programs: &[&str]) -> Option<String> {
    let missing = programs.iter().find(|program| !is_installed(program))?;
    Some(format!("{missing} is not installed (ci/install-packages)"))
}

fn is_installed(program: &str) -> bool {
    // openssl alone has another word for it.
    let version = if program == "openssl" { "version" } else { "--version" };
    Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

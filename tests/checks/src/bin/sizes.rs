//! Reports the files over 600 lines and the functions over 60, the house's limits. A report, not a verdict: a longer
//! file says in its first lines why.
#![forbid(unsafe_code)]

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 60;

fn main() {
    let (mut files, mut functions) = (0, 0);
    for source in sluice_checks::sources() {
        let lines = source.text.lines().count();
        if lines > FILE_LINES {
            files += 1;
            println!("{}: {lines} lines", source.path);
        }
        for (name, first, lines) in sluice_checks::functions(&sluice_checks::blank(&source.text)) {
            if lines > FUNCTION_LINES {
                functions += 1;
                println!("{}:{first}: fn {name}: {lines} lines", source.path);
            }
        }
    }
    println!("{files} files over {FILE_LINES} lines, {functions} functions over {FUNCTION_LINES}");
}

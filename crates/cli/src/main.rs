//! The `rcuwalk` command.
#![deny(unsafe_code)]

mod args;
mod audit;
mod bench;
mod explain;
mod image;
mod look;
mod mount;
mod output;
mod render;
mod signals;
mod source;
mod sys;
mod umount;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use output::{Done, Failure, complain, print};

#[global_allocator]
static ALLOCATOR: sys::OrExit = sys::OrExit;

fn main() -> ExitCode {
    let done = match Cli::try_parse_from(mount::arguments(std::env::args_os())) {
        Ok(cli) => signals::watch().and_then(|()| run(&cli.command)),
        Err(e) => usage(&e),
    };
    signals::yield_to_end();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Failure::Error(text) = &failure {
                complain(text);
            }
            ExitCode::from(failure.code())
        }
    }
}

fn run(command: &Command) -> Done {
    match command {
        Command::Bench(args) => bench::run(args),
        Command::Stat(args) => look::stat(args),
        Command::Ls(args) => look::ls(args),
        Command::Tree(args) => look::tree(args),
        Command::Readlink(args) => look::readlink(args),
        Command::Access(args) => look::access(args),
        Command::Audit(args) => audit::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Replay(args) => bench::replay(args),
        Command::Save(args) => image::save(args),
        Command::Image(args) => image::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => umount::run(args),
        Command::Doctor { json } => bench::doctor(*json),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "rcuwalk", &mut script);
            print(&script)
        }
        Command::Man { dir } => man(dir.as_deref()),
    }
}

/// Shows help, version or what is wrong with the arguments.
fn usage(error: &clap::Error) -> Done {
    let text = error.render();
    let terminal = output::Terminal::stdout();
    if error.use_stderr() {
        // Nothing is left to do when not even that can be shown.
        let _ = error.print();
        return Err(Failure::Explained);
    }
    let text = if terminal.colour { text.ansi().to_string() } else { text.to_string() };
    print(text.as_bytes())
}

fn man(dir: Option<&std::path::Path>) -> Done {
    let failed = |place: String, e: &std::io::Error| {
        let text = rcuwalk_host::describe(e);
        Failure::Error(format!("writing the manual: {place}: {text}; name a directory that can be written"))
    };
    match dir {
        Some(dir) => {
            clap_mangen::generate_to(Cli::command(), dir).map_err(|e| failed(dir.display().to_string(), &e))
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command())
                .render(&mut page)
                .map_err(|e| failed("standard output".into(), &e))?;
            print(&page)
        }
    }
}

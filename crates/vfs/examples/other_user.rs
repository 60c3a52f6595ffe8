//! Tests what a program leaves for other users: `cargo run -p rcuwalk --example other_user`.

use rcuwalk::fs::{Fs, Permissions};
use rcuwalk::{Cred, Vfs};
use std::io;

/// The program under test. It takes an `&Fs` where it would have called `std::fs`.
fn install(fs: &Fs) -> io::Result<()> {
    fs.create_dir_all("/srv/app")?;
    fs.write("/srv/app/public", "read me")?;
    fs.write("/srv/app/key", "secret")?;
    fs.set_permissions("/srv/app/key", Permissions::from_mode(0o640))?;
    fs.chown("/srv/app/key", None, Some(27))
}

fn main() -> io::Result<()> {
    let vfs = Vfs::new()?;
    install(&vfs.fs(Cred::root()))?;

    let member = vfs.fs(Cred::user(1000, 1000, &[27]));
    let stranger = vfs.fs(Cred::user(1001, 1001, &[]));
    assert_eq!(member.read_to_string("/srv/app/key")?, "secret");
    assert_eq!(stranger.read_to_string("/srv/app/public")?, "read me");
    let refused = stranger.read("/srv/app/key").expect_err("a stranger may not read the key");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    println!("The group reads the key; a stranger gets: {refused}");
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}

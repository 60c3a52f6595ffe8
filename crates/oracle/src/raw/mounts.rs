//! statmount(2) and listmount(2): ids that differ from world to world go in, and text without them comes out.

use crate::args::{Arg, Fd, Mem, MountRequest};
use crate::op::Op;
use crate::outcome::Outcome;
use crate::raw::{Caller, half_pair, word};
use crate::sys::{Frame, nr};

/// `struct mnt_id_req` but for its last word but one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) ns_id: u64,
    /// 0: none.
    pub(crate) ns_fd: i32,
    pub(crate) size: u64,
}

/// What a system under test is asked; it answers in the bytes of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask<'a> {
    /// The id of the mount of a place.
    Id {
        dirfd: &'a Fd,
        path: &'a Mem,
    },
    Stat {
        request: Request,
        mask: u64,
        room: usize,
        flags: u64,
    },
    List {
        request: Request,
        last: u64,
        room: usize,
        flags: u64,
    },
}

type Asker<'a> = &'a mut dyn FnMut(Ask<'_>) -> Result<Vec<u8>, i32>;

const MNT_POINT: u64 = 0x10;
const MNT_NS_ID: u64 = 0x40;
/// Room for any answer.
const ROOM: usize = 1 << 16;

/// Makes one of both calls.
pub(crate) fn perform(op: &Op, ask: Asker<'_>) -> Outcome {
    let answer = match op {
        Op::Statmount { of, mask, room, flags } => request(of, ask).and_then(|request| {
            let (mask, room) = (mask.0, room.0 as usize);
            let out = ask(Ask::Stat { request, mask, room, flags: flags.0 as u64 })?;
            Ok(Outcome::Bytes(text(&out, request, ask)))
        }),
        Op::Listmount { of, after, after_id, room, flags } => request(of, ask).and_then(|request| {
            let last = match after {
                Mem::Null => after_id.0 as u64,
                path => half_pair(&ask(Ask::Id { dirfd: &Fd::CWD, path })?),
            };
            let ids = ask(Ask::List { request, last, room: room.0 as usize, flags: flags.0 })?;
            let ids = ids.chunks_exact(8).map(half_pair);
            Ok(Outcome::Names(ids.map(|id| point(Request { id, size: 32, ..request }, ask)).collect()))
        }),
        _ => return Outcome::Broken(format!("`{}` is not about mounts", op.name())),
    };
    answer.unwrap_or_else(Outcome::Error)
}

fn request(of: &MountRequest, ask: Asker<'_>) -> Result<Request, i32> {
    let id = match of.id {
        0 => half_pair(&ask(Ask::Id { dirfd: &of.dirfd, path: &of.path })?),
        id => id as u64,
    };
    let ns_fd = if of.ns == Fd::CWD { 0 } else { of.ns.raw() };
    let request = Request { id, ns_id: of.ns_id as u64, ns_fd, size: of.size };
    if !of.by_id {
        return Ok(request);
    }
    let root = Request { id: u64::MAX, size: 32, ..request };
    let first = half_pair(&ask(Ask::List { request: root, last: 0, room: 1, flags: 0 })?);
    let first = Request { id: first, ..root };
    let ns = ask(Ask::Stat { request: first, mask: MNT_NS_ID, room: ROOM, flags: 0 })?;
    Ok(Request { ns_id: half_pair(&ns[112..]), ns_fd: 0, ..request })
}

/// Where a mount is: its path, `-` if it has none below the root, or the error.
fn point(request: Request, ask: Asker<'_>) -> Vec<u8> {
    match ask(Ask::Stat { request, mask: MNT_POINT, room: ROOM, flags: 0 }) {
        Ok(out) if half_pair(&out[8..]) == 0 => b"-".to_vec(),
        Ok(out) => string(&out, 108),
        Err(errno) => crate::errno::name(errno).into_bytes(),
    }
}

/// The text that the word at `at` points to.
fn string(out: &[u8], at: usize) -> Vec<u8> {
    out[512 + word(&out[at..]) as usize..].split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

/// As many texts as the word before `at` says, from where the word at `at` points to.
fn strings(out: &[u8], at: usize) -> Vec<u8> {
    let texts = out[512 + word(&out[at..]) as usize..].split(|&byte| byte == 0);
    texts.take(word(&out[at - 4..]) as usize).collect::<Vec<_>>().join(&b'|')
}

fn text(out: &[u8], request: Request, ask: Asker<'_>) -> Vec<u8> {
    if out.len() < 512 {
        return format!("cut size={}", if out.len() < 4 { 0 } else { word(out) }).into_bytes();
    }
    let (mask, long) = (half_pair(&out[8..]), |at: usize| half_pair(&out[at..]));
    let mut text = format!("size={} mask={mask:#x}", word(out)).into_bytes();
    let mut say = |flag: u64, name: &str, value: &dyn Fn() -> Vec<u8>| {
        if mask & flag != 0 {
            text.extend_from_slice(&[b" ", name.as_bytes(), b"=", &value()].concat());
        }
    };
    let hex = |word: u64| format!("{word:#x}").into_bytes();
    say(1, "magic", &|| hex(long(24)));
    say(1, "sb_flags", &|| hex(word(&out[32..]).into()));
    say(2, "same", &|| (long(40) == request.id).to_string().into_bytes());
    let parent = if mask & 2 == 0 || long(48) == long(40) {
        b"-".to_vec()
    } else {
        point(Request { id: long(48), ..request }, ask)
    };
    say(2, "parent", &|| parent.clone());
    say(2, "attr", &|| hex(long(64)));
    say(2, "propagation", &|| hex(long(72)));
    say(2, "groups", &|| [long(80), long(88)].map(|group| u8::from(group != 0) + b'0').to_vec());
    say(4, "from", &|| vec![u8::from(long(96) != 0) + b'0']);
    say(8, "root", &|| string(out, 104));
    say(MNT_POINT, "point", &|| string(out, 108));
    say(0x20, "type", &|| string(out, 36));
    say(MNT_NS_ID, "ns", &|| vec![u8::from(long(112) != 0) + b'0']);
    say(0x80, "opts", &|| string(out, 4));
    say(0x200, "source", &|| string(out, 124));
    say(0x400, "array", &|| strings(out, 132));
    say(0x1000, "supported", &|| hex(long(144)));
    say(0x2000, "uids", &|| strings(out, 156));
    say(0x4000, "gids", &|| strings(out, 164));
    text
}

/// Asks by system calls.
pub(super) fn asked(ask: Ask<'_>, call: Caller<'_>) -> Result<Vec<u8>, i32> {
    let mut frame = Frame::new();
    match ask {
        Ask::Id { dirfd, path } => {
            dirfd.lower(&mut frame);
            path.lower(&mut frame);
            const NOFOLLOW_OR_EMPTY: u64 = 0x1100;
            const MNT_ID_UNIQUE: u64 = 0x4000;
            [NOFOLLOW_OR_EMPTY, MNT_ID_UNIQUE].into_iter().for_each(|word| frame.int(word));
            frame.room(256);
            call(&mut frame, nr::statx)?;
            Ok(frame.out()[0x90..0x98].to_vec())
        }
        Ask::Stat { request, mask, room, flags } => {
            lower(request, mask, &mut frame);
            // The kernel writes a NUL behind a buffer that has no room for text.
            frame.room(room.max(513));
            [room as u64, flags].into_iter().for_each(|word| frame.int(word));
            call(&mut frame, nr::statmount)?;
            Ok(frame.out()[..room].to_vec())
        }
        Ask::List { request, last, room, flags } => {
            lower(request, last, &mut frame);
            // What is more is refused.
            frame.room(room.min(1_000_000) * 8);
            [room as u64, flags].into_iter().for_each(|word| frame.int(word));
            let n = call(&mut frame, nr::listmount)?;
            Ok(frame.out()[..n as usize * 8].to_vec())
        }
    }
}

/// `struct mnt_id_req`: one register.
fn lower(request: Request, param: u64, frame: &mut Frame) {
    let head = (request.size & 0xffff_ffff) | (request.ns_fd as u32 as u64) << 32;
    let words = [head, request.id, param, request.ns_id];
    let mut bytes = words.map(u64::to_ne_bytes).as_flattened().to_vec();
    bytes.resize(request.size.max(32) as usize, 0);
    frame.bytes(&bytes);
}

//! The connection to the kernel: what is agreed upon at its start, and threads that take requests and answer them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use rcuwalk::Errno;
use rustix::io::Errno as HostErrno;

use crate::protocol::*;
use crate::server::Server;
use crate::sys;

/// Bytes of a request beside the data: the kernel asks for room for a page at least.
const BESIDE: usize = 4096;

/// Requests that the kernel may have under way while no process waits for them: reading ahead, forgetting, writing back.
const MAX_BACKGROUND: u16 = 64;

/// Threads that serve a mount until it is unmounted.
#[derive(Debug)]
pub(crate) struct Session {
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Session {
    /// Agrees with the kernel on how to speak, and starts `threads` threads.
    ///
    /// # Errors
    ///
    /// `EPROTO`: the kernel's FUSE is too old. Those of reading from the device, and of starting threads.
    pub(crate) fn start(server: Server, device: &Arc<OwnedFd>, threads: usize) -> io::Result<Session> {
        let setxattr_ext = handshake(device, server.wanted())? & init::SETXATTR_EXT != 0;
        let server = Arc::new(server);
        let threads = (0..threads).map(|n| {
            // Each thread has its own queue of requests under way. Who may not open the device shares the first one's.
            let own = if n == 0 { None } else { clone_device(device).ok() };
            let device = own.map_or_else(|| Arc::clone(device), Arc::new);
            let server = Arc::clone(&server);
            let serve = move || serve(&server, &device, setxattr_ext);
            Builder::new().name(format!("rcuwalk-fuse-{n}")).spawn(serve)
        });
        Ok(Session { threads: threads.collect::<io::Result<_>>()? })
    }

    /// Whether it was unmounted; or a thread is gone that should not be, and requests may wait for ever.
    pub(crate) fn is_over(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// How a thread ended that is gone, if one is: without an error because it was unmounted.
    pub(crate) fn ended(&mut self) -> Option<io::Result<()>> {
        let gone = self.threads.iter().position(JoinHandle::is_finished)?;
        Some(join(self.threads.swap_remove(gone)))
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    ///
    /// What the first thread that failed ended with.
    pub(crate) fn join(self) -> io::Result<()> {
        self.threads.into_iter().try_for_each(join)
    }
}

fn join(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that serves requests panicked")))
}

fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    let own: OwnedFd = File::options().read(true).write(true).open("/dev/fuse")?.into();
    sys::clone_device(&own, device)?;
    Ok(own)
}

/// The next request's bytes; `None` when it was unmounted.
fn receive<'a>(device: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(n) => return Ok(Some(&buffer[..n])),
            // The caller gave up, or a signal came.
            Err(HostErrno::NOENT | HostErrno::INTR | HostErrno::AGAIN) => {}
            Err(HostErrno::NODEV) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Answers the kernel's first request. Tells what it offers of what is `wanted`.
fn handshake(device: &OwnedFd, wanted: u64) -> io::Result<u64> {
    let mut buffer = vec![0; MAX_DATA + BESIDE];
    let mut reply = Reply::new(size_of::<InitOut>());
    loop {
        let Some(message) = receive(device, &mut buffer)? else { return Err(HostErrno::NOTCONN.into()) };
        let Some(request) = Request::parse(message, false) else { continue };
        let mut send = |done| rustix::io::write(device, reply.finish(request.header.unique, done));
        let Ok(Operation::Init(kernel, flags2)) = request.operation else {
            send(Err(Errno::EIO))?;
            continue;
        };
        if (kernel.major, kernel.minor) < (MAJOR, OLDEST_MINOR) {
            send(Err(Errno::EPROTO))?;
            return Err(HostErrno::PROTO.into());
        }
        let mut answer = InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() };
        if kernel.major > MAJOR {
            // It asks again, in this version.
            reply.put(&answer);
            rustix::io::write(device, reply.finish(request.header.unique, Ok(())))?;
            continue;
        }
        let offered = u64::from(kernel.flags) | u64::from(flags2) << 32;
        let agreed = offered & (wanted | init::INIT_EXT | init::MAX_PAGES);
        answer.max_readahead = kernel.max_readahead;
        answer.flags = agreed as u32;
        answer.flags2 = (agreed >> 32) as u32;
        answer.max_background = MAX_BACKGROUND;
        answer.congestion_threshold = MAX_BACKGROUND / 4 * 3;
        answer.max_write = MAX_DATA as u32;
        answer.max_pages = MAX_PAGES;
        answer.time_gran = 1;
        reply.put(&answer);
        rustix::io::write(device, reply.finish(request.header.unique, Ok(())))?;
        return Ok(agreed);
    }
}

/// Takes requests and answers them until it is unmounted.
fn serve(server: &Server, device: &OwnedFd, setxattr_ext: bool) -> io::Result<()> {
    let mut buffer = vec![0; MAX_DATA + BESIDE];
    let mut reply = Reply::new(MAX_DATA);
    while let Some(message) = receive(device, &mut buffer)? {
        let Some(request) = Request::parse(message, setxattr_ext) else { continue };
        let done = server.answer(&request, &mut reply);
        if !request.is_one_way() {
            // Fails if the caller was killed meanwhile. Its request took effect all the same.
            let _ = rustix::io::write(device, reply.finish(request.header.unique, done));
        }
    }
    Ok(())
}

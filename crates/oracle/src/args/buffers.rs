//! What calls read from memory or write to it, with its size: one piece, or an array of them.

use serde::{Deserialize, Serialize};

use crate::args::{Arg, Mem};
use crate::read::{Node, Read};
use crate::sys::{BAD_ADDRESS, Frame};
use crate::text;

/// Sizes from here on are beyond what any program can address; a call may be told one of them whatever the memory is.
const ABSURD: i64 = 1 << 60;

/// Why an array of one piece cannot have such a size.
const CUT: &str = "a single size is cut to 2 GiB before anybody looks at the memory, which is not there";

fn is_absurd(size: i64) -> bool {
    !(0..ABSURD).contains(&size)
}

/// Bytes with their length: two registers. Reads like [`Mem`], with `size` beside it where the call is told another length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// The bytes.
    pub bytes: Mem,
    /// The length told to the call in their place, which is negative or at least 2^60.
    pub told: Option<i64>,
}

impl Data {
    /// Bytes with their own length.
    pub fn of(bytes: Vec<u8>) -> Data {
        Data { bytes: Mem::Bytes(bytes), told: None }
    }

    /// The length told to the call. Of no bytes, one is asked for, so that the pointer is used.
    fn len(&self) -> u64 {
        match (self.told, &self.bytes) {
            (Some(told), _) => told as u64,
            (None, Mem::Bytes(bytes)) => bytes.len() as u64,
            (None, _) => 1,
        }
    }
}

impl Arg for Data {
    const KIND: &'static str = "bytes";

    fn read(node: Node<'_>) -> Read<Data> {
        let Some(mut table) = node.as_table("bytes") else {
            return Mem::parse(node).map(|bytes| Data { bytes, told: None });
        };
        let told = match table.take("size") {
            None => None,
            Some(size) if is_absurd(size.int()?) => Some(size.int()?),
            Some(size) => {
                return Err(size.problem("bytes have their own size, unless it is one that no memory has"));
            }
        };
        Mem::read_table(table).map(|bytes| Data { bytes, told })
    }

    fn print(&self) -> String {
        match (self.told, &self.bytes) {
            (None, bytes) => bytes.print(),
            (Some(told), Mem::Bytes(bytes)) => format!("{{ hex = \"{}\", size = {told} }}", text::hex(bytes)),
            (Some(told), bytes) => bytes.print().replace(" }", &format!(", size = {told} }}")),
        }
    }

    fn lower(&self, frame: &mut Frame) {
        match &self.bytes {
            Mem::Bytes(bytes) => frame.bytes(bytes),
            other => other.lower(frame),
        }
        frame.int(self.len());
    }

    fn is_raw(&self) -> bool {
        self.bytes.is_raw() || self.told.is_some()
    }
}

/// Several [`Data`] as an array of `struct iovec`: two registers (pointer, count).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces(
    /// The pieces.
    pub Vec<Data>,
);

impl Arg for Pieces {
    const KIND: &'static str = "array of bytes";

    fn read(node: Node<'_>) -> Read<Pieces> {
        let pieces: Vec<Data> = node.array()?.into_iter().map(Data::read).collect::<Read<_>>()?;
        match pieces[..] {
            [Data { told: Some(ABSURD..), .. }] => Err(node.problem(CUT)),
            _ => Ok(Pieces(pieces)),
        }
    }

    fn print(&self) -> String {
        format!("[{}]", self.0.iter().map(Data::print).collect::<Vec<_>>().join(", "))
    }

    fn lower(&self, frame: &mut Frame) {
        let pairs: Vec<u64> =
            self.0.iter().flat_map(|data| [frame.detached(&data.bytes).0, data.len()]).collect();
        frame.bytes(pairs.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>().as_slice());
        frame.int(self.0.len() as u64);
    }

    fn is_raw(&self) -> bool {
        self.0.iter().any(Data::is_raw)
    }
}

/// Room for a result of `size` bytes: two registers (pointer, size).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The size told to the call; it may be one that no memory has (negative, at least 2^60), the memory behind it is then small.
    pub size: i64,
    /// Whether the pointer faults.
    pub bad: bool,
}

impl Room {
    /// Proper room of `size` bytes.
    pub const fn of(size: i64) -> Room {
        Room { size, bad: false }
    }

    /// Bytes there are behind a proper pointer.
    fn bytes(self) -> usize {
        /// What calls that cut an absurd size may write.
        const ENOUGH: usize = 1 << 20;
        if is_absurd(self.size) { ENOUGH } else { self.size as usize }
    }

    fn size(node: Node<'_>) -> Read<i64> {
        let size = node.int()?;
        if is_absurd(size) { Ok(size) } else { node.int_in(0, 1 << 24) }
    }
}

impl Arg for Room {
    const KIND: &'static str = "room";

    fn read(node: Node<'_>) -> Read<Room> {
        if node.is_int() {
            return Room::size(node).map(Room::of);
        }
        let mut table = node.table("room")?;
        let size = Room::size(table.need("size")?)?;
        let bad = match table.take("pointer") {
            None => false,
            Some(node) if node.str()? == "bad" => true,
            Some(node) => return Err(node.problem("the pointer of a room can only be \"bad\"")),
        };
        table.finish()?;
        Ok(Room { size, bad })
    }

    fn print(&self) -> String {
        if self.bad {
            format!("{{ size = {}, pointer = \"bad\" }}", self.size)
        } else {
            self.size.to_string()
        }
    }

    fn lower(&self, frame: &mut Frame) {
        if self.bad {
            frame.bad();
        } else {
            frame.room(self.bytes());
        }
        frame.int(self.size as u64);
    }

    fn is_raw(&self) -> bool {
        self.bad || is_absurd(self.size)
    }
}

/// Several [`Room`]s, side by side, as an array of `struct iovec`: two registers (pointer, count).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rooms(
    /// The rooms.
    pub Vec<Room>,
);

impl Arg for Rooms {
    const KIND: &'static str = "array of rooms";

    fn read(node: Node<'_>) -> Read<Rooms> {
        let rooms: Vec<Room> = node.array()?.into_iter().map(Room::read).collect::<Read<_>>()?;
        match rooms[..] {
            [Room { size: ABSURD.., .. }] => Err(node.problem(CUT)),
            _ => Ok(Rooms(rooms)),
        }
    }

    fn print(&self) -> String {
        format!("[{}]", self.0.iter().map(Room::print).collect::<Vec<_>>().join(", "))
    }

    fn lower(&self, frame: &mut Frame) {
        let mut next = frame.detached_room(self.0.iter().map(|room| room.bytes()).sum());
        let pairs: Vec<u64> = self
            .0
            .iter()
            .flat_map(|room| {
                let address = if room.bad { BAD_ADDRESS } else { next };
                next += room.bytes() as u64;
                [address, room.size as u64]
            })
            .collect();
        frame.bytes(pairs.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>().as_slice());
        frame.int(self.0.len() as u64);
    }

    fn is_raw(&self) -> bool {
        self.0.iter().any(Room::is_raw)
    }
}

/// Room of a size that the call knows: one register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Struct<const SIZE: usize> {
    /// Whether the pointer faults.
    pub bad: bool,
}

/// Room for `struct stat`.
pub type StatRoom = Struct<144>;
/// Room for `struct statx`.
pub type StatxRoom = Struct<256>;

impl<const SIZE: usize> Arg for Struct<SIZE> {
    const KIND: &'static str = "result pointer";

    fn read(node: Node<'_>) -> Read<Struct<SIZE>> {
        let mut table = node.table("result pointer")?;
        let pointer = table.need("pointer")?;
        if pointer.str()? != "bad" {
            return Err(pointer.problem("the result pointer can only be \"bad\""));
        }
        table.finish()?;
        Ok(Struct { bad: true })
    }

    fn print(&self) -> String {
        "{ pointer = \"bad\" }".to_owned()
    }

    fn lower(&self, frame: &mut Frame) {
        if self.bad { frame.bad() } else { frame.room(SIZE) }
    }

    fn is_raw(&self) -> bool {
        self.bad
    }
}

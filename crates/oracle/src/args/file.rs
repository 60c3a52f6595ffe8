//! What calls on open files and their attributes take besides buffers: hints, attributes, offsets of two halves.

use serde::{Deserialize, Serialize};

use crate::args::Arg;
use crate::read::{Node, Read};
use crate::sys::Frame;
use crate::text;
use crate::words::XFlags;

/// The offset of preadv2(2) and pwritev2(2), in two registers, of which the second does not count on 64 bits; -1 is the
/// position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitOffset(
    /// The offset.
    pub i64,
);

impl Arg for SplitOffset {
    const KIND: &'static str = "integer";

    fn read(node: Node<'_>) -> Read<SplitOffset> {
        node.int().map(SplitOffset)
    }

    fn print(&self) -> String {
        self.0.to_string()
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(self.0 as u64);
        frame.int(0);
    }
}

/// A pointer to 64 bits that a call reads: a write hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint(
    /// The hint.
    pub i64,
);

impl Arg for Hint {
    const KIND: &'static str = "integer";

    fn read(node: Node<'_>) -> Read<Hint> {
        node.int().map(Hint)
    }

    fn print(&self) -> String {
        self.0.to_string()
    }

    fn lower(&self, frame: &mut Frame) {
        frame.bytes(&self.0.to_ne_bytes());
    }
}

/// Attributes of a file: `{ xflags = …, extsize = 0, projid = 0, cowextsize = 0 }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// `FS_XFLAG_*`.
    pub xflags: XFlags,
    /// Size hint.
    pub extsize: u32,
    /// Project.
    pub projid: u32,
    /// Size hint for copies on write.
    pub cowextsize: u32,
}

impl Attributes {
    fn words(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let words = [self.extsize, 0, self.projid, self.cowextsize];
        bytes.copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
        bytes
    }
}

impl Arg for Attributes {
    const KIND: &'static str = "file attributes";

    fn read(node: Node<'_>) -> Read<Attributes> {
        let mut table = node.table("file attributes")?;
        let xflags = table.take("xflags").map_or(Ok(XFlags(0)), XFlags::read)?;
        let mut word = |key| {
            let node: Option<Node<'_>> = table.take(key);
            node.map_or(Ok(0), |node| node.int_in(0, i64::from(u32::MAX))).map(|word| word as u32)
        };
        let (extsize, projid, cowextsize) = (word("extsize")?, word("projid")?, word("cowextsize")?);
        table.finish()?;
        Ok(Attributes { xflags, extsize, projid, cowextsize })
    }

    fn print(&self) -> String {
        let mut out = format!("{{ xflags = {}", self.xflags.print());
        for (key, word) in
            [("extsize", self.extsize), ("projid", self.projid), ("cowextsize", self.cowextsize)]
        {
            if word != 0 {
                out.push_str(&format!(", {key} = {word}"));
            }
        }
        out + " }"
    }

    /// `struct file_attr`: one register.
    fn lower(&self, frame: &mut Frame) {
        frame.bytes(&[&self.xflags.0.to_ne_bytes()[..], &self.words()].concat());
    }
}

/// [`Attributes`] as `FS_IOC_FSSETXATTR` takes them, `struct fsxattr`, whose flags have 32 bits: two registers (request,
/// pointer).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fsxattr(
    /// The attributes.
    pub Attributes,
);

impl Arg for Fsxattr {
    const KIND: &'static str = Attributes::KIND;

    fn read(node: Node<'_>) -> Read<Fsxattr> {
        match Attributes::read(node)? {
            attr if attr.xflags.0 > u64::from(u32::MAX) => {
                Err(node.problem("the flags of struct fsxattr have 32 bits; file_setattr has 64"))
            }
            attr => Ok(Fsxattr(attr)),
        }
    }

    fn print(&self) -> String {
        self.0.print()
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(0x401c_5820);
        frame.bytes(&[&(self.0.xflags.0 as u32).to_ne_bytes()[..], &self.0.words(), &[0; 8]].concat());
    }
}

/// `struct file_handle` as it is: `{ kind = 1, hex = "…" }`, with `bytes` beside them where the call is told another length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// The type.
    pub kind: i32,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The length told to the call, if another.
    pub told: Option<u32>,
}

impl Arg for Handle {
    const KIND: &'static str = "handle";

    fn read(node: Node<'_>) -> Read<Handle> {
        let mut table = node.table("handle")?;
        let kind =
            table.take("kind").map_or(Ok(1), |node| node.int_in(i32::MIN.into(), i32::MAX.into()))? as i32;
        let bytes = match table.take("hex") {
            Some(node) => text::unhex(node.str()?).map_err(|message| node.problem(message))?,
            None => Vec::new(),
        };
        let told = table.take("bytes").map(|node| node.int_in(0, i64::from(u32::MAX))).transpose()?;
        table.finish()?;
        Ok(Handle { kind, bytes, told: told.map(|told| told as u32) })
    }

    fn print(&self) -> String {
        let told = self.told.map_or(String::new(), |told| format!(", bytes = {told}"));
        format!("{{ kind = {}, hex = \"{}\"{told} }}", self.kind, text::hex(&self.bytes))
    }

    fn lower(&self, frame: &mut Frame) {
        let len = self.told.unwrap_or(self.bytes.len() as u32);
        frame.bytes(&[&len.to_ne_bytes()[..], &self.kind.to_ne_bytes(), &self.bytes].concat());
    }

    fn is_raw(&self) -> bool {
        self.told.is_some()
    }
}

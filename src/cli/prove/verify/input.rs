//! Reads the objects of a file, one after the other.
//!
//! JSON lines, one array, one array per line, and one object over many lines are all read in the same way: as objects with
//! punctuation between them. Any other text is garbage: it is skipped up to the end of its line or of its array item, and
//! reported as an empty input.

use std::io::{self, BufRead, Read};

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::Deserializer;

const MAX_OBJECT: usize = 64 * 1024 * 1024;

/// If an object continues on the next line, at most this number of objects and arrays can be open at the end of the
/// line. If the object turns out to be broken, only its first line is skipped. Each later line can then be the start of
/// an object that is read ahead again. Objects that continue over the same line are nested in each other, so this limit
/// bounds how often one line is read.
const MAX_DEPTH_OVER_LINES: usize = 128;

/// At most this much of a line is read at once.
const AT_ONCE: u64 = 64 * 1024;

/// The mark that some editors write at the beginning of a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) struct Inputs<R> {
    reader: R,
    /// Bytes that were read. The bytes from `start` on are not consumed yet.
    buffer: Vec<u8>,
    start: usize,
    /// The number of arrays that enclose the next input.
    arrays: usize,
}

impl<R: BufRead> Inputs<R> {
    pub(super) fn new(reader: R) -> io::Result<Self> {
        let mut inputs = Self { reader, buffer: Vec::new(), start: 0, arrays: 0 };
        inputs.byte(BYTE_ORDER_MARK.len() - 1)?;
        if inputs.buffer.starts_with(BYTE_ORDER_MARK) {
            inputs.start = BYTE_ORDER_MARK.len();
        }
        Ok(inputs)
    }

    /// The bytes of the next object, or no bytes for garbage. `None` at the end of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(byte) = self.byte(0)? {
            match byte {
                b'{' => return self.object().map(Some),
                b'[' => self.arrays += 1,
                b']' if self.arrays > 0 => self.arrays -= 1,
                b',' if self.arrays > 0 => {}
                _ if byte.is_ascii_whitespace() => {}
                _ => return self.garbage(self.arrays > 0).map(Some),
            }
            self.start += 1;
        }
        // The file ends inside an array.
        Ok((std::mem::take(&mut self.arrays) > 0).then(Bytes::new))
    }

    fn object(&mut self) -> io::Result<Bytes> {
        if let Some(length) = self.length_in_this_line() {
            return Ok(self.take(length));
        }
        let ahead = LookAhead { inputs: self, read: 0, depth: 0, in_text: false, escaped: false };
        let mut objects = Deserializer::from_reader(ahead).into_iter::<IgnoredAny>();
        let (found, length) = (objects.next(), objects.byte_offset());
        match found {
            Some(Ok(_)) => Ok(self.take(length)),
            Some(Err(error)) if error.is_io() => Err(error.into()),
            _ => self.garbage(false),
        }
    }

    /// The length of the next object, if the object ends within the part of the line that is in the buffer. Most
    /// objects end there. For these objects, this function is many times as fast as [`LookAhead`], which reads byte by
    /// byte.
    fn length_in_this_line(&self) -> Option<usize> {
        let line = self.buffer[self.start..].split(|byte| *byte == b'\n').next()?;
        let mut objects = Deserializer::from_slice(line).into_iter::<IgnoredAny>();
        matches!(objects.next(), Some(Ok(_))).then(|| objects.byte_offset())
    }

    fn take(&mut self, length: usize) -> Bytes {
        let taken = Bytes::copy_from_slice(&self.buffer[self.start..self.start + length]);
        self.start += length;
        taken
    }

    /// Skips the rest of the line or, for a plain value in an array, up to the next item.
    fn garbage(&mut self, in_array: bool) -> io::Result<Bytes> {
        while let Some(byte) = self.byte(0)? {
            if byte == b'\n' || (in_array && matches!(byte, b',' | b']')) {
                break;
            }
            self.start += 1;
        }
        Ok(Bytes::new())
    }

    /// The byte that is `ahead` bytes after the next one. `None` beyond the end of the file.
    fn byte(&mut self, ahead: usize) -> io::Result<Option<u8>> {
        while self.start + ahead >= self.buffer.len() {
            self.buffer.drain(..self.start);
            self.start = 0;
            if self.reader.by_ref().take(AT_ONCE).read_until(b'\n', &mut self.buffer)? == 0 {
                return Ok(None);
            }
        }
        Ok(Some(self.buffer[self.start + ahead]))
    }
}

/// Reads ahead in the file without consuming it. Ends if an object is too long or nested too deeply.
struct LookAhead<'a, R> {
    inputs: &'a mut Inputs<R>,
    read: usize,
    /// How many objects and arrays are open.
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl<R: BufRead> Read for LookAhead<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let (Some(first), true) = (out.first_mut(), self.read < MAX_OBJECT) else { return Ok(0) };
        let Some(byte) = self.inputs.byte(self.read)? else { return Ok(0) };
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            b'{' | b'[' if !self.in_text => self.depth += 1,
            b'}' | b']' if !self.in_text => self.depth = self.depth.saturating_sub(1),
            b'\n' if self.depth > MAX_DEPTH_OVER_LINES => return Ok(0),
            _ => {}
        }
        self.read += 1;
        *first = byte;
        Ok(1)
    }
}

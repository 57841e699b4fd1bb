//! The objects of a file, one after the other.
//!
//! JSON lines, one array, an array a line and one object over many lines are all read alike: objects with punctuation between
//! them. Anything else is garbage up to the end of its line, or of its place in an array.

use std::io::{self, BufRead};

use bytes::Bytes;

use super::scan::{Scan, Step};

/// No object is longer than this.
const MAX_OBJECT: usize = 64 * 1024 * 1024;

/// An object over several lines is nested no deeper than this where a line ends. It bounds how often a line is scanned again
/// after an object turned out to be broken.
const MAX_DEPTH_OVER_LINES: usize = 128;

/// The mark that some editors put before UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// One thing to verify.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The bytes of a closed object.
    Object(Bytes),
    /// Something else.
    Garbage,
}

/// Reads inputs from a file. Holds one object at a time.
pub(super) struct Inputs<R> {
    reader: R,
    /// Read and not yet taken, from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// How many arrays are open around the next input.
    arrays: usize,
    at_beginning: bool,
}

impl<R: BufRead> Inputs<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new(), start: 0, arrays: 0, at_beginning: true }
    }

    /// The next input; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Input>> {
        self.skip_byte_order_mark()?;
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
        Ok((std::mem::take(&mut self.arrays) > 0).then_some(Input::Garbage))
    }

    fn object(&mut self) -> io::Result<Input> {
        let mut scan = Scan::new();
        let mut length = 0;
        while let Some(byte) = self.byte(length)? {
            length += 1;
            let too_deep = byte == b'\n' && scan.depth() > MAX_DEPTH_OVER_LINES;
            match scan.push(byte) {
                Step::Open if !too_deep && length < MAX_OBJECT => {}
                Step::Complete => {
                    let object = Bytes::copy_from_slice(&self.buffer[self.start..self.start + length]);
                    self.start += length;
                    return Ok(Input::Object(object));
                }
                Step::Open | Step::Broken => break,
            }
        }
        self.garbage(false)
    }

    /// Skips the rest of the line or, for a plain value in an array, up to the next item.
    fn garbage(&mut self, in_array: bool) -> io::Result<Input> {
        while let Some(byte) = self.byte(0)? {
            if byte == b'\n' || (in_array && matches!(byte, b',' | b']')) {
                break;
            }
            self.start += 1;
        }
        Ok(Input::Garbage)
    }

    fn skip_byte_order_mark(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.at_beginning) {
            self.byte(BYTE_ORDER_MARK.len() - 1)?;
            if self.buffer.starts_with(&BYTE_ORDER_MARK) {
                self.start = BYTE_ORDER_MARK.len();
            }
        }
        Ok(())
    }

    /// The byte that many places ahead; `None` beyond the end of the file.
    fn byte(&mut self, ahead: usize) -> io::Result<Option<u8>> {
        while self.start + ahead >= self.buffer.len() {
            if !self.read_more()? {
                return Ok(None);
            }
        }
        Ok(Some(self.buffer[self.start + ahead]))
    }

    fn read_more(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let more = loop {
            match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        let length = more.len();
        self.buffer.extend_from_slice(more);
        self.reader.consume(length);
        Ok(length > 0)
    }
}

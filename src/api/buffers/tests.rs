use super::*;
use net::memory::ChannelMemory;

fn read(buffers: &Arc<Buffers>, announced: usize, length: usize, byte: u8) -> Bytes {
    let mut body = buffers.body(announced, Arc::<ChannelMemory>::default().free()).unwrap();
    vec![byte; length].chunks(10_000).for_each(|chunk| body.extend(chunk).unwrap());
    body.freeze()
}

#[test]
fn the_buffer_of_a_long_body_is_used_again_once_no_slice_of_it_is_left() {
    let buffers = Arc::<Buffers>::default();
    let first = read(&buffers, 0, 2 * LONG, 1);
    let (slice, buffer) = (first.slice(70_000..70_010), first.as_ptr());
    drop(first);
    let second = read(&buffers, 2 * LONG, 2 * LONG, 2);
    assert_ne!(second.as_ptr(), buffer, "a part of it is still held");
    assert_eq!(slice, [1; 10][..]);
    drop(slice);
    let third = read(&buffers, LONG, LONG, 3);
    assert_eq!((third.as_ptr(), third.len()), (buffer, LONG));
    assert!(third.iter().all(|byte| *byte == 3));
}

#[test]
fn a_short_body_keeps_no_buffer() {
    let buffers = Arc::<Buffers>::default();
    drop(read(&buffers, 0, LONG, 1));
    let short = read(&buffers, 0, 100, 2);
    assert_eq!((buffers.lock().len(), short.len()), (1, 100));
    let announced = read(&buffers, 100, 100, 3);
    assert_eq!((buffers.lock().len(), announced.len()), (1, 100));
}

#[test]
fn only_a_few_buffers_that_are_not_too_large_are_kept() {
    let buffers = Arc::<Buffers>::default();
    let held: Vec<_> = (0..2 * KEPT).map(|_| read(&buffers, 0, LONG, 1)).collect();
    drop(held);
    assert_eq!(buffers.lock().len(), KEPT);
    buffers.lock().clear();
    drop(read(&buffers, LARGEST + 1, LARGEST + 1, 1));
    assert!(buffers.lock().is_empty());
}

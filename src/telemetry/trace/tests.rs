use super::*;

#[test]
fn an_id_is_of_32_digits() {
    let id = TraceId(NonZero::new(0xab).expect("it is not zero"));
    assert_eq!(id.to_string(), "000000000000000000000000000000ab");
    assert_ne!(TraceId::random(), TraceId::random());
}

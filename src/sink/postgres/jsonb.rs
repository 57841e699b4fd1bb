//! Recognizes JSON that the type `jsonb` refuses: a NUL, half a surrogate pair, or a number that `numeric` cannot represent.

/// The most digits that `numeric` allows before and after the decimal point.
const DIGITS: (i64, i64) = (131_072, 16_383);

/// Whether `jsonb` refuses this text. The text must be valid JSON.
pub(super) fn refuses(json: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        at += match byte {
            b'"' => match text(&json[at..]) {
                Some(length) => length,
                None => return true,
            },
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let length = json[at..].iter().position(|byte| !is_part(byte)).unwrap_or(json.len() - at);
                if !is_numeric(&json[at..at + length]) {
                    return true;
                }
                length
            }
            _ => 1,
        };
    }
    false
}

/// The length of the JSON string that begins here. `None` if it contains an escape that `jsonb` refuses.
fn text(json: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => match unit(&json[at..]) {
                Some(0 | 0xDC00..=0xDFFF) => return None,
                Some(0xD800..=0xDBFF) => match unit(json.get(at + 6..)?) {
                    Some(0xDC00..=0xDFFF) => at += 12,
                    _ => return None,
                },
                Some(_) => at += 6,
                None => at += 2,
            },
            _ => at += 1,
        }
    }
}

/// The UTF-16 unit of the escape `\uXXXX` with which the text begins.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Whether `numeric` can represent a number.
fn is_numeric(number: &[u8]) -> bool {
    let Ok(number) = std::str::from_utf8(number) else { return false };
    if number.len() <= 20 && !number.contains(['e', 'E']) {
        return true;
    }
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let Ok(exponent) = exponent.trim_start_matches('+').parse::<i32>().map(i64::from) else { return false };
    let (whole, fraction) = mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX / 2);
    digits(whole) + exponent <= DIGITS.0 && digits(fraction) - exponent <= DIGITS.1
}

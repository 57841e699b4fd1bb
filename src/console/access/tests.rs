use axum::http::HeaderName;

use super::*;

pub(super) fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
    all.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
}

#[test]
fn a_one_time_address_works_once() {
    let access = Access::new(80, false);
    let token = access.offer(None);
    assert!(matches!(access.enter(&token), EntryResult::In(_)));
    assert_eq!(access.enter(&token), EntryResult::Used);
    assert_eq!(access.enter("another"), EntryResult::Unknown);
    assert_eq!(access.enter(""), EntryResult::Unknown);
    let over = access.offer(Some(Instant::now()));
    assert_eq!(access.enter(&over), EntryResult::Unknown);
}

#[test]
fn a_browser_is_recognized_by_its_cookie_only() {
    let access = Access::new(80, false);
    let [first, second] = [(); 2].map(|()| match access.enter(&access.offer(None)) {
        EntryResult::In(cookie) => cookie,
        other => panic!("{other:?}"),
    });
    let cookie = |value: &str| headers(&[("cookie", &format!("other=1; channeld-console-80={value}"))]);
    let visitor = access.visitor(&cookie(&first), false).unwrap();
    assert_eq!(visitor.number, 1);
    access.notify(&visitor, Ok("done".to_owned()));
    assert_eq!(access.visitor(&cookie(&second), true).unwrap().notice, None);
    assert_eq!(access.visitor(&cookie(&first), false).unwrap().notice, None, "no page was requested");
    assert_eq!(access.visitor(&cookie(&first), true).unwrap().notice, Some(Ok("done".to_owned())));
    assert_eq!(access.visitor(&cookie(&first), true).unwrap().notice, None);
    for wrong in ["", "x", &first[1..]] {
        assert!(access.visitor(&cookie(wrong), false).is_none(), "{wrong:?}");
    }
    assert!(access.visitor(&headers(&[("cookie", &format!("channeld-console-81={first}"))]), false).is_none());
    assert_ne!(access.visitor(&cookie(&second), false).unwrap().form_token, visitor.form_token);
}

#[test]
fn sessions_are_bounded_and_the_oldest_idle_one_is_dropped() {
    let access = Access::new(80, false);
    let cookies: Vec<_> = (0..=MOST_SESSIONS)
        .map(|_| {
            let EntryResult::In(cookie) = access.enter(&access.offer(None)) else {
                panic!("the browser is not admitted")
            };
            cookie
        })
        .collect();
    let is_in = |cookie: &str| access.visitor(&headers(&[("cookie", &format!("channeld-console-80={cookie}"))]), false);
    assert!(is_in(&cookies[0]).is_none());
    assert!(is_in(&cookies[1]).is_some() && is_in(&cookies[MOST_SESSIONS]).is_some());
}
